"""A message that is sent through a flow: where it comes from, and how much of it has arrived."""


cdef class Outgoing:
    """A message on its way: bytes that are kept until all have arrived, or a stream that is added piece by piece."""

    def __init__(self, bytes body=None, notify=None):
        """body: all of it; None: a stream, see `add`."""
        self.chunks = []
        self.notify = notify
        if body is not None:
            self.whole = self.ended = True
            self.size = len(body)
            if body:
                self.chunks.append(body)

    def add(self, bytes chunk not None, bint last=False):
        """The next piece of a stream; `last`: nothing follows."""
        if self.whole or self.ended:
            raise ValueError("the message is complete already")
        if chunk:
            self.chunks.append(chunk)
            self.size += len(chunk)
        self.ended = last
        self.restarted = False

    @property
    def pending(self):
        """Bytes that were added and have not arrived."""
        return self.size - self.confirmed

    @property
    def over(self):
        """Whether nothing more happens to it."""
        return self.done or self.cancelled or self.failure is not None

    cdef bint has_piece(self) noexcept:
        return self.cancelled or self.place < len(self.chunks) or self.ended

    cdef void rewind(self):
        """The receiver knows nothing of it any more."""
        if not self.begun:
            return
        self.begun = False
        self.confirmed = 0
        self.place = self.start = 0
        if not self.whole:
            self.chunks.clear()
            self.size = 0
            self.ended = False
            self.restarted = True
