"""Limits around code that is not ours: time of one calculation, memory of the process, and who is to blame."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from chappe.status.condensation.worker_protocol import BLAME_BYTES

PR_SET_PDEATHSIG = 1
WAITING = 10  # times its limit of processor time a calculation may last
FILES = 256  # descriptors the worker may have


class BudgetExceeded(BaseException):
    """A calculation took too long; no `except Exception` of it can hold this up."""


class Budget:
    """Runs calculations under a time limit and notes whose turn it is, for the router to read if the worker dies.

    The limit is of processor time, so that a busy machine is nobody's fault; one that waits instead of calculating gets
    ten times as long. A timer goes on after it has fired: code that swallows the first exception gets another. Code
    that never comes back to Python is ended by the router, which hears no report.
    """

    def __init__(self, seconds: float, blame: Path) -> None:
        self.seconds = seconds
        self._running = False
        descriptor = os.open(blame, os.O_RDWR)
        try:
            self._blame = mmap.mmap(descriptor, BLAME_BYTES)
        finally:
            os.close(descriptor)
        signal.signal(signal.SIGPROF, self._late)
        signal.signal(signal.SIGALRM, self._late)

    def run(self, variable_id: int, times: float, call: Callable[..., Any], *arguments: Any) -> Any:
        """What `call` gives, code of that function; BudgetExceeded if it takes longer than `times` the limit."""
        seconds = self.seconds * times
        self._blame[:4] = variable_id.to_bytes(4, "big")
        self._running = True
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds, self.seconds)
            signal.setitimer(signal.ITIMER_REAL, WAITING * seconds, self.seconds)
            return call(*arguments)
        finally:
            self._running = False  # first, and no call: from here on a signal that comes late raises nothing
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._blame[:4] = bytes(4)

    @contextlib.contextmanager
    def loading(self, variable_id: int) -> Iterator[None]:
        """Inside, the package of that function is imported, in another thread."""
        self._blame[4:] = variable_id.to_bytes(4, "big")
        try:
            yield
        finally:
            self._blame[4:] = bytes(4)

    def _late(self, number: int, frame: FrameType | None) -> None:
        if not self._running:
            return
        milliseconds = self.seconds * 1000
        if number == signal.SIGPROF:
            raise BudgetExceeded(f"a calculation took more than {milliseconds:g} ms of the processor")
        raise BudgetExceeded(f"a calculation did not end within {WAITING * milliseconds:g} ms")


def confine(memory_bytes: int) -> None:
    """Take no more memory than now and so much more, few descriptors, no core file; end with the router."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
