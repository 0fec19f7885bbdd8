"""How much processor time the steps of a coroutine take on the loop: what others take from it is not their fault."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import thread_time_ns
from types import TracebackType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Gate(Protocol):
    """Decides when the handshake of an accepted connection begins."""

    def meter(self, host: str) -> Meter | None:
        """For a handshake that may begin at once; None: `wait`."""

    def wait(self, host: str, begin: Callable[[Meter], None]) -> None:
        """Call `begin` when it is the turn of that host."""


class Meter:
    """Adds up time that was used, and passes each piece on to `charge`."""

    __slots__ = ("charge", "total_ns")

    def __init__(self, charge: Callable[[int], None]) -> None:
        self.charge = charge  # may be another one from some step on
        self.total_ns = 0

    def add(self, took_ns: int) -> None:
        self.total_ns += took_ns
        self.charge(took_ns)

    def measured(self, work: Coroutine[Any, Any, T]) -> Metered[T]:
        """The same coroutine; whoever awaits it pays for its steps."""
        return Metered(work, self)


class Metered(Coroutine[Any, Any, T]):
    """A coroutine whose steps are measured."""

    def __init__(self, work: Coroutine[Any, Any, T], meter: Meter) -> None:
        self._work = work
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # it has send, throw and close: `await` asks for no more

    def __iter__(self) -> Metered[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        began_ns = thread_time_ns()
        try:
            return self._work.send(value)
        finally:
            self._meter.add(thread_time_ns() - began_ns)

    def throw(
        self, typ: Any, val: BaseException | object = None, tb: TracebackType | None = None
    ) -> Any:  # fmt: skip
        began_ns = thread_time_ns()
        try:
            return self._work.throw(typ) if val is None else self._work.throw(typ, val, tb)
        finally:
            self._meter.add(thread_time_ns() - began_ns)

    def close(self) -> None:
        self._work.close()
