"""Deadlines by the clock of the records, kept by the kernel: finer than the timers of an event loop (GS-138)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import os
from collections.abc import Callable

CLOCK_REALTIME, TFD_TIMER_ABSTIME = 0, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Calls back at absolute times, in nanoseconds since 1970; one descriptor for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.timerfd_create(CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._set_ns = 0
        loop.add_reader(self._descriptor, self._expired)

    def at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Call once, then; a time that is over: at once."""
        self._order += 1
        heapq.heappush(self._waiting, (max(1, when_ns), self._order, call))
        self._set()

    def close(self) -> None:
        """Nothing is called any more."""
        self._waiting.clear()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _set(self) -> None:
        first_ns = self._waiting[0][0] if self._waiting else 0
        if first_ns != self._set_ns:
            self._set_ns = first_ns
            setting = _Setting(_Timespec(0, 0), _Timespec(*divmod(first_ns, 1_000_000_000)))
            self._libc.timerfd_settime(self._descriptor, TFD_TIMER_ABSTIME, ctypes.byref(setting), None)

    def _expired(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        first_ns, self._set_ns = self._set_ns, 0
        while self._waiting and self._waiting[0][0] <= first_ns:
            heapq.heappop(self._waiting)[2]()
        self._set()
