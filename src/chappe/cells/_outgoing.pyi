from collections.abc import Callable

class Outgoing:
    """A message on its way: bytes that are kept until all have arrived, or a stream that is added piece by piece."""

    size: int
    confirmed: int
    done: bool
    restarted: bool
    failure: Exception | None
    notify: Callable[[], None] | None

    def __init__(self, body: bytes | None = None, notify: Callable[[], None] | None = None) -> None: ...
    def add(self, chunk: bytes, last: bool = False) -> None:
        """The next piece of a stream; `last`: nothing follows."""
    @property
    def pending(self) -> int: ...
    @property
    def over(self) -> bool: ...
