"""What clients of a run write down, one JSON array a line, and how it is read back.

A line is `[time, what, ...]`; times are nanoseconds of the monotonic clock, which all processes of a machine share and
no fault changes. A client writes before it begins an operation and again when it knows the answer: what has no answer
may have happened or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
NOTICE_NS = 10_000_000_000  # a node may have given a client up so long before that client notices: it stood still


class Event(NamedTuple):
    """An event as its body names it: numbers count from 0 for each publisher and class."""

    publisher: str
    priority: int
    number: int

    def __str__(self) -> str:
        return f"{self.publisher}:{self.priority}:{self.number}"


class Published(NamedTuple):
    """An event that the client accepted; `confirmed_ns`: when a flush after it was answered, 0 if none was."""

    event: Event
    at_ns: int
    confirmed_ns: int = 0


class Durable(NamedTuple):
    """A durable event and what its publisher was told."""

    event: Event
    at_ns: int
    outcome: str = UNKNOWN
    answered_ns: int = 0


class Received(NamedTuple):
    """An event as a subscriber got it."""

    event: Event
    at_ns: int


class Connected(NamedTuple):
    """A time in which a client was connected; of a subscriber, with its subscription confirmed."""

    node: str
    from_ns: int
    until_ns: int


class ModeChange(NamedTuple):
    """An operator asked for a mode."""

    mode: int
    began_ns: int
    ended_ns: int
    outcome: str


class ModeRead(NamedTuple):
    """An operator read the mode at the broker that leads."""

    mode: int
    began_ns: int
    ended_ns: int


class Watched(NamedTuple):
    """A subscription to a variable that its subscriber holds granted, and the values of the last quiet time."""

    watcher: str
    variable: str
    interval_ns: int  # granted
    received: int
    span_ns: int


class Writer:
    """Appends lines to a history; each is complete in the file before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, what: str, *values: Any) -> int:
        """The time that was written."""
        now = time.monotonic_ns()
        self._file.write(self._encode((now, what, *values)) + b"\n")
        return now

    def close(self) -> None:
        self._file.close()


def lines(path: Path) -> Iterator[list[Any]]:
    """All lines of a history; a torn last one, of a client that was killed, is left out."""
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line)


def publications(name: str, history: Iterable[list[Any]]) -> tuple[list[Published], list[Durable]]:
    """Of one publisher: events with the flush that covers them, and durable events with their answers."""
    plain: list[Published] = []
    durable: dict[tuple[int, int], Durable] = {}
    covered: dict[int, int] = {}  # number of a flush -> events before it
    confirmed = 0
    for at_ns, what, *values in history:
        match what:
            case "publish":
                plain.append(Published(Event(name, *values), at_ns))
            case "flush":
                covered[values[0]] = len(plain)
            case "flushed":
                upto = covered.pop(values[0])
                for at in range(confirmed, upto):
                    plain[at] = plain[at]._replace(confirmed_ns=at_ns)
                confirmed = max(confirmed, upto)
            case "durable":
                durable[tuple(values)] = Durable(Event(name, *values), at_ns)
            case "stored":
                priority, number, outcome = values[:3]
                asked = durable[priority, number]
                durable[priority, number] = asked._replace(outcome=outcome, answered_ns=at_ns)
    return plain, list(durable.values())


def connections(history: Iterable[list[Any]], end_ns: int) -> list[Connected]:
    """When a client was connected for sure, and where."""
    found: list[Connected] = []
    node, since_ns = "", 0
    for at_ns, what, *values in history:
        if what == "up":
            node, since_ns = values[0], at_ns
        elif what == "down" and since_ns:
            found.append(Connected(node, since_ns, max(since_ns, at_ns - NOTICE_NS)))
            since_ns = 0
    if since_ns:
        found.append(Connected(node, since_ns, end_ns))
    return found


def receipts(history: Iterable[list[Any]]) -> list[Received]:
    """Of one subscriber, in the order in which it got them."""
    return [Received(Event(*values), at_ns) for at_ns, what, *values in history if what == "event"]


def mode_operations(history: Iterable[list[Any]]) -> tuple[list[ModeChange], list[ModeRead]]:
    """Of one operator, who does one thing after the other."""
    changes: list[ModeChange] = []
    reads: list[ModeRead] = []
    asked: tuple[int, int] | None = None
    for at_ns, what, *values in history:
        if what == "mode":
            if asked is not None:
                changes.append(ModeChange(asked[0], asked[1], asked[1], UNKNOWN))
            asked = (values[0], at_ns)
        elif what == "mode answer" and asked is not None:
            changes.append(ModeChange(asked[0], asked[1], at_ns, values[0]))
            asked = None
        elif what == "mode read":
            reads.append(ModeRead(values[1], values[0], at_ns))
    if asked is not None:
        changes.append(ModeChange(asked[0], asked[1], asked[1], UNKNOWN))
    return changes, reads
