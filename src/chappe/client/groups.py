"""Group subscriptions: variables read together, each set from one instant (GS-047 to GS-049)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from fractions import Fraction
from typing import overload

import msgspec

from chappe.client._status import StatusEvent, StatusStream, Watch
from chappe.client.quality import Qos, QosRequest, Seconds
from chappe.client.reporting import QualityReporter
from chappe.client.snapshots import Member, Rhythm, Rounds, Sample, Snapshot
from chappe.client.structs import TypeName, value_type
from chappe.client.watched import Watched, WatchOptions
from chappe.errors import WithdrawnError
from chappe.wire.constants import MODES


class Group:
    """Variables that are read together; made by `client.group`.

    `latest()` is one set, never a mixture of two. `callback(snapshot)` and `async for` get every complete set.
    """

    def __init__(
        self,
        watched: Watched,
        name: str,
        request: QosRequest,
        *,
        mode: int,
        next_mode: int,
        reporter: QualityReporter | None,
        report: Callable[[Exception], None],
        on_close: Callable[[], object],
        history: int,
        max_queue: int,
        callback: Callable[[Snapshot], None] | None,
    ) -> None:
        if max_queue < 1:
            raise ValueError(f"a group keeps one set or more for its iterators, not {max_queue}")
        self.name = name
        self.callback = callback
        self.on_withdrawn: Callable[[Member, WithdrawnError], None] | None = None
        self.dropped = 0  # sets that no iterator had taken when newer ones came
        self.closed = False
        self._reporter = reporter
        self._report = report
        self._on_close = on_close
        self._watched = watched
        self._request = request
        self._rounds = Rounds(history, mode)
        self._rounds.modes(mode, next_mode)
        self._watches: dict[Member, Watch] = {}
        self._queue: deque[Snapshot] = deque()
        self._max_queue = max_queue
        self._iterated = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def members(self) -> tuple[Member, ...]:
        """(publisher, variable) of each."""
        return self._rounds.members

    @property
    def discarded(self) -> int:
        """Rounds that stayed incomplete."""
        return self._rounds.discarded

    @property
    def strays(self) -> int:
        """Values that belong to no round."""
        return self._rounds.strays

    async def add(
        self,
        publisher: str,
        variable: str,
        *,
        latency: Seconds | None = None,
        redundancy: int = 1,
        type: TypeName | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """A variable more, from the next set on; interval, priority and modes are those of the group.

        ValueError if it is a member already, or if its values never fall on the instants of the others.
        """
        member = (publisher, variable)
        if self.closed or member in self._watches:
            state = "is closed" if self.closed else f"has {publisher}/{variable} already"
            raise ValueError(f"group {self.name!r} {state}")
        own = Qos(latency=latency, redundancy=redundancy).wire()
        request = QosRequest(
            tuple(
                msgspec.structs.replace(qos, latency_ns=own.latency_ns, redundancy=own.redundancy)
                for qos in self._request.qos
            ),
            self._request.modes,
            plain=self._request.plain and latency is None and redundancy == 1,
        )
        stream = StatusStream(max_queue=1)
        options = WatchOptions(
            request=request,
            kind=None if type is None else value_type(type),
            on_withdrawn=self._withdrawn,
            wait_s=wait_s,
        )
        await self._watched.watch([member], options, stream)
        watch = stream.watches[0]
        try:
            self._rounds.add(member, _rhythm(watch))
        except ValueError:
            await self._watched.unwatch(watch)
            raise
        assert watch.quality is not None
        watch.quality.on_admitted = self._admitted
        self._watches[member] = watch
        watch.tap(self._received)

    async def remove(self, publisher: str, variable: str) -> None:
        """A variable less; sets from now on are complete without it."""
        watch = self._watches.pop((publisher, variable), None)
        if watch is None:
            raise ValueError(f"group {self.name!r} has no {publisher}/{variable}")
        watch.untap(self._received)
        self._rounds.remove((publisher, variable))
        await self._watched.unwatch(watch)

    async def close(self) -> None:
        """Remove all members; iterators end after what is queued."""
        self.end()
        for member in list(self._watches):
            await self.remove(*member)

    def end(self) -> None:
        """No more sets."""
        self.closed = True
        self._on_close()
        self._wake()

    @overload
    def latest(self) -> Snapshot | None: ...
    @overload
    def latest(self, count: int) -> list[Snapshot]: ...
    def latest(self, count: int | None = None) -> Snapshot | list[Snapshot] | None:
        """The newest complete set, or None; with a number the newest so many that are kept, oldest first."""
        complete = self._rounds.complete
        if count is None:
            return complete[-1] if complete else None
        if count < 0:
            raise ValueError(f"a number of sets is not negative: {count}")
        return list(complete)[max(len(complete) - count, 0) :]

    async def __aiter__(self) -> AsyncIterator[Snapshot]:
        """Complete sets from now on, in order; one iterator at a time."""
        self._iterated = True
        while True:
            while self._queue:
                yield self._queue.popleft()
            if self.closed:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self, mode: int, following: int) -> None:
        """A mode is coming, or in force if it equals the other (GS-116)."""
        self._rounds.modes(mode, following)

    def _admitted(self, watch: Watch) -> None:
        """The node has granted it again, on another connection or beside another watch."""
        try:
            self._rounds.add((watch.publisher, watch.variable), _rhythm(watch))
        except ValueError as error:
            self._report(error)

    def _received(self, event: StatusEvent) -> None:
        sample = Sample(event.value, event.created, event.received)
        given_up = self._rounds.discarded
        snapshot = self._rounds.offer((event.publisher, event.variable), sample)
        if self._reporter is not None and self._rounds.discarded > given_up:
            self._reporter.incomplete(self.name, self._rounds.discarded - given_up)
        if snapshot is None:
            return
        if self._iterated:
            self._queue.append(snapshot)
            if len(self._queue) > self._max_queue:
                self._queue.popleft()
                self.dropped += 1
            self._wake()
        if self.callback is not None:
            self.callback(snapshot)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _withdrawn(self, watch: Watch, error: WithdrawnError) -> None:
        member = (watch.publisher, watch.variable)
        if self._watches.pop(member, None) is None:
            return
        self._rounds.remove(member)
        if self.on_withdrawn is None:
            self._report(error)
        else:
            self.on_withdrawn(member, error)


def _rhythm(watch: Watch) -> Rhythm:
    if watch.rate_num == 0:
        raise ValueError(f"{watch.publisher}/{watch.variable} has no rate: only periodic variables form sets")
    assert watch.quality is not None
    period = Fraction(watch.rate_den, watch.rate_num)
    every = watch.quality.every
    return Rhythm(period, {mode: every[mode] * period for mode in range(MODES) if mode in every})
