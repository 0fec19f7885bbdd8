"""Events that a lost neighbour had not confirmed: each gets another way, or waits until there is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from chappe.engine._engine import Engine
from chappe.engine.rescue import RawOutputs, Rescued
from chappe.events.ways import Outputs, Ways

Raw = Callable[[Outputs], RawOutputs]


@dataclass(slots=True)
class _Stranded:
    event: Rescued
    lost: str
    port: int
    until_ns: int


class Rescue:
    """Works through the queues of lost neighbours in slices, oldest events first."""

    def __init__(self, engine: Engine, ways: Ways, raw: Raw, stranded_ns: int, stranded_bytes: int, slice: int) -> None:
        self._engine = engine
        self._ways = ways
        self._raw = raw
        self._stranded_ns = stranded_ns
        self._limit = stranded_bytes
        self._slice = slice
        self._lost: dict[int, str] = {}  # ports whose queues are not empty yet
        self._stranded: deque[_Stranded] = deque()
        self._bytes = 0
        self.rescued = self.dropped = 0

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do at once."""
        return bool(self._lost)

    @property
    def waiting(self) -> int:
        """Events that have no way at the moment."""
        return len(self._stranded)

    def begin(self, port: int, name: str) -> None:
        """That neighbour is lost."""
        self._lost[port] = name

    def returned(self, port: int) -> None:
        """The neighbour is there again: what found no other way in between takes its old one."""
        self._lost.pop(port, None)
        kept: deque[_Stranded] = deque()
        for each in self._stranded:
            if each.port != port:
                kept.append(each)
                continue
            self._bytes -= len(each.event.frame)
            self._engine.redirect(each.event, (False, [(port, each.event.way)], 0, None))
            self.rescued += 1
        self._stranded = kept

    def work(self, now_ns: int) -> None:
        """The next slice."""
        for port in list(self._lost):
            if self._work(port, now_ns):
                return

    def finish(self, port: int, now_ns: int) -> None:
        """All of that port, which will not be there any more."""
        while port in self._lost and self._work(port, now_ns):
            pass
        for each in self._stranded:
            if each.port == port:
                each.port = -1  # another neighbour may get the number

    def _work(self, port: int, now_ns: int) -> bool:
        name = self._lost[port]
        events = self._engine.rescue(port, self._slice)
        if not events:
            del self._lost[port]
        for event in events:
            rest = self._send(event, name)
            if rest is not None:
                self._strand(_Stranded(rest, name, port, now_ns + self._stranded_ns))
        return bool(events)

    def retry(self) -> None:
        """Ways have changed: try those that wait again."""
        for _ in range(len(self._stranded)):
            each = self._stranded.popleft()
            rest = self._send(each.event, each.lost)
            if rest is None:
                self._bytes -= len(each.event.frame)
            else:
                each.event = rest
                self._stranded.append(each)

    def expire(self, now_ns: int) -> None:
        """Give up what has waited for too long."""
        while self._stranded and self._stranded[0].until_ns <= now_ns:
            self._drop()

    def _send(self, event: Rescued, lost: str) -> Rescued | None:
        """Send it wherever there is a way now; what is left of it otherwise."""
        outputs = self._ways.rescue(event.way, event.kind, event.topic, lost)
        if outputs.branches:
            self._engine.redirect(event, self._raw(outputs))
            self.rescued += 1
        return event._replace(way=outputs.rest) if outputs.rest else None

    def _strand(self, stranded: _Stranded) -> None:
        self._stranded.append(stranded)
        self._bytes += len(stranded.event.frame)
        while self._bytes > self._limit:
            self._drop()

    def _drop(self) -> None:
        self._bytes -= len(self._stranded.popleft().event.frame)
        self.dropped += 1
