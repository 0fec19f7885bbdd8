"""Limits around code that is not ours: time of one calculation, memory of the process, and who is to blame."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
FILES = 256  # descriptors the worker may have


class BudgetExceeded(BaseException):
    """A calculation took too long; no `except Exception` of it can hold this up."""


class Budget:
    """Runs calculations under a time limit and notes whose turn it is, for the router to read if the worker dies."""

    def __init__(self, seconds: float, blame: Path) -> None:
        self.seconds = seconds
        descriptor = os.open(blame, os.O_RDWR)
        try:
            self._blame = mmap.mmap(descriptor, 4)
        finally:
            os.close(descriptor)
        signal.signal(signal.SIGALRM, self._late)

    @contextlib.contextmanager
    def of(self, variable_id: int) -> Iterator[None]:
        """Inside, code of that function runs; BudgetExceeded if it takes longer than allowed.

        The timer goes on, so that code which swallows the first exception gets another; code that never comes back to
        Python is ended by the router, which hears no report.
        """
        self._blame[:4] = variable_id.to_bytes(4, "big")
        signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._blame[:4] = bytes(4)

    def _late(self, number: int, frame: FrameType | None) -> None:
        if self._blame[:4] != bytes(4):
            raise BudgetExceeded(f"a calculation took longer than {self.seconds * 1000:g} ms")


def confine(memory_bytes: int) -> None:
    """Take no more memory than now and so much more, few descriptors, no core file; end with the router."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
