"""A bench that ends, for whatever reason, leaves no process behind."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import psutil

PR_SET_CHILD_SUBREAPER = 36
ENDING = (signal.SIGTERM, signal.SIGHUP)
ORDER_S = 3.0  # to end in order, before it is killed


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """SIGTERM and a lost terminal end the bench as Ctrl-C does; all processes below this one are ended afterwards.

    Those whose parents have ended are adopted by this process, so that it finds them.
    """
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _interrupt) for number in ENDING} if main else {}
    started = set(_descendants())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        end([process for process in _descendants() if process not in started])


def end(processes: list[psutil.Process]) -> None:
    """Ask them to end, and kill those that do not; one that stands still is let go on first."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            process.resume()
    _, left = psutil.wait_procs(processes, ORDER_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, ORDER_S)


def _descendants() -> list[psutil.Process]:
    """Living processes below this one; multiprocessing's own tracker ends with its parent."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            tracker = any("multiprocessing.resource_tracker" in word for word in process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and not tracker:
                found.append(process)
    return found


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C: what handles that knows what runs, be it a call or a task of an event loop."""
    signal.raise_signal(signal.SIGINT)
