"""The few words of memory that the processes of a run share: the phase, what was sent, what each subscriber has."""

from __future__ import annotations

import mmap
import os

LINE, PHASE, SENT, FAULT, SLOTS = 8, 0, 8, 16, 32  # as in _channel.pxd
WAIT, RUN, STOP, END = 0, 1, 2, 3
BUCKETS = 2048  # of the latency histogram, the last words of the block


class Shared:
    """A memory block that is passed to child processes by its descriptor."""

    def __init__(self, subscribers: int = 0, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("chappe-bench", 0)
            os.ftruncate(fd, (SLOTS + LINE * max(1, subscribers) + BUCKETS) * 8)
            os.set_inheritable(fd, True)
        self.fd = fd
        self._map = mmap.mmap(fd, 0)
        self.words = memoryview(self._map).cast("L")

    def close(self) -> None:
        self.words.release()
        self._map.close()
        os.close(self.fd)

    @property
    def phase(self) -> int:
        return self.words[PHASE]

    @phase.setter
    def phase(self, value: int) -> None:
        self.words[PHASE] = value

    @property
    def sent(self) -> int:
        return self.words[SENT]

    @property
    def faulty(self) -> bool:
        return bool(self.words[FAULT])

    def histogram(self) -> list[int]:
        """Latencies noted so far, by bucket."""
        return self.words[-BUCKETS:].tolist()

    def received(self, subscriber: int) -> int:
        return self.words[SLOTS + LINE * subscriber]

    def probed(self, subscriber: int) -> bool:
        return bool(self.words[SLOTS + LINE * subscriber + 1])
