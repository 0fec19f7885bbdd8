"""A thread beside an event loop that does one thing after the other, for what waits for a disk.

`concurrent.futures` has such threads, and chains three futures for each call: 60 µs on the way to a disk that syncs in
100. Here one future of the loop is all there is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

import structlog

log = structlog.get_logger(__name__)
T = TypeVar("T")


class SerialExecutor:
    """Runs actions in the order of their calls, in a thread that begins with the first of them."""

    def __init__(self, name: str, begin: Callable[[], None] | None = None) -> None:
        """`begin` runs in the thread before everything else."""
        self._name = name
        self._begin = begin
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = False

    async def run(self, action: Callable[[], T]) -> T:
        """What the action gives or raises. It runs to its end whether the caller waits or is cancelled."""
        if self._over:
            raise RuntimeError(f"thread {self._name} is shut down")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = action()
            except BaseException as error:  # whoever waits gets it
                loop.call_soon_threadsafe(_fail, answer, error, self._name)
            else:
                loop.call_soon_threadsafe(_succeed, answer, result)

        self._calls.put(call)
        return await answer

    def shutdown(self) -> None:
        """Wait for what is under way; nothing can be run afterwards."""
        self._over = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()

    def _work(self) -> None:
        if self._begin is not None:
            self._begin()
        while (call := self._calls.get()) is not None:
            try:
                call()
            except RuntimeError as error:  # the loop was closed while this ran
                log.warning("nobody hears how it ended", thread=self._name, reason=str(error))


def _succeed(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: BaseException, name: str) -> None:
    if not answer.done():
        answer.set_exception(error)
    else:  # whoever waited was cancelled
        log.error("an action failed that nobody waits for", thread=name, reason=f"{type(error).__name__}: {error}")
