"""One run: set up, publish, fail and mend, change modes, fail over, quiet down, remove; and what was seen meanwhile."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.managed import checker, plan
from chappe.sim.clock import Clock
from chappe.sim.managed.client import Hole, StatusClient, Stream
from chappe.sim.managed.network import ManagedNetwork
from chappe.sim.managed.router import Router
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Done
from chappe.wire.management import ChangeMode, Path

CHANNELS_PER_S = 4.0 / 1000  # that fail, for each router
ROUTERS_PER_S = 1.0 / 1000
AWAY_S = (5.0, 20.0)
MODES_AT, FAIL_OVER_AT = (1 / 3, 2 / 3), 1 / 2  # of the time of failures
QUIET_S = 30.0
REMOVED_S = 90.0  # routers remember variables for a minute
SETTLE_S = 120.0
WINDOW_S = 40.0  # of measured capacity: a multiple of all intervals, so that each window holds as many events

Table = dict[tuple[int, int], Path]


@dataclass(slots=True)
class Outcome:
    """What one run showed."""

    nodes: int
    wanted: int = 0
    granted: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    unexplained: int = 0  # refused without a reason, or never answered
    admission_s: float = 0.0
    arrivals: int = 0
    late: list[str] = field(default_factory=list)  # events beyond their bound that had a whole path
    held: int = 0  # events beyond their bound that waited for a channel, or for their subscriber to come back
    holes: int = 0
    broken: list[str] = field(default_factory=list)  # holes that no failure explains
    outages_s: list[float] = field(default_factory=list)
    not_restored: list[str] = field(default_factory=list)
    overloads: list[checker.Overload] = field(default_factory=list)
    measured_over: list[str] = field(default_factory=list)
    fullest: float = 0.0  # channel, as a share of its capacity, by tables
    busiest: float = 0.0  # by events that it carried in one window
    shared: int = 0  # granted pairs of paths that are not disjoint
    table: int = 0  # paths in the largest table
    entries_left: int = 0
    items_left: int = 0
    channels_failed: int = 0
    routers_failed: int = 0
    mode_answers: list[str] = field(default_factory=list)
    failed_over: bool = False
    failures: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    broker_s: float = 0.0
    messages: int = 0
    happened: int = 0


Say = Callable[[float, str], None]


class Course:
    """A deployment of so many routers under failures for so long."""

    def __init__(self, nodes: int, seed: int, seconds: float, say: Say) -> None:
        rng = random.Random(seed)
        self.topology: Topology = plan.topology(nodes, rng)
        self.wishes = plan.workload(self.topology, rng)
        self.network = ManagedNetwork(self.topology, seed)
        self.outcome = Outcome(nodes, wanted=len(self.wishes))
        self.clients: dict[str, StatusClient] = {}
        self._rng = rng
        self._seconds = seconds
        self._say = say
        self._failing = False
        self._capacity = {channel.between: channel.bytes_per_s for channel in self.topology.channel}
        self._sent: dict[tuple[str, str], int] = {}  # events by direction
        self._modes = checker.ModeHistory()
        network = self.network
        self._reachability = checker.Reachability(
            lambda name, variable_id: network.routers[name].paths_of(variable_id),
            lambda name, start, end: network.routers[name].was_down(start, end),
            lambda one, other, start, end: network.channel(one, other).was_down(start, end),
            self._modes.in_force,
        )

    @property
    def _clock(self) -> Clock:
        return self.network.clock

    def run(self) -> Outcome:
        """Everything, in order."""
        began = time.process_time()
        self._begin()
        self._publish()
        self._subscribe()
        self._fail()
        self._mend()
        self._remove()
        outcome = self.outcome
        outcome.cpu_s = time.process_time() - began
        outcome.virtual_s = self._clock.seconds
        outcome.happened = self._clock.happened
        outcome.broker_s = sum(each.spent_ns for each in self.network.brokers.values()) / 1e9
        outcome.messages = sum(link.messages for each in self.network.brokers.values() for link in each.links)
        outcome.failures += [each for broker in self.network.brokers.values() for each in broker.failures]
        for name, router in self.network.routers.items():
            counts = router.node.counts
            if counts.refused or counts.faults:
                outcome.failures.append(f"{name}: {counts.refused} connections refused, {counts.faults} bad frames")
        return outcome

    # --- set-up

    def _begin(self) -> None:
        self._say(0, "brokers and channels")
        self.network.start()
        until_s = self._clock.seconds + SETTLE_S
        while not all(channel.connected for channel in self.network.channels.values()):
            self.network.run(1.0)
            if self._clock.seconds > until_s:
                raise RuntimeError("the channels did not come up")
        self.network.run(5.0)
        for name, router in self.network.routers.items():
            client = self.clients[name] = router.client(f"client.{name}")
            client.on_hole, client.on_late = self._judge_hole, self._judge_late
            for number in range(plan.VARIABLES):
                client.register(f"plant.{name}", f"v{number}", plan.INTERVAL_NS)
        self._wait(lambda: all(each.variable_id for client in self.clients.values() for each in client.publications))

    def _publish(self) -> None:
        """All at the same moments, as instruments with a common clock do."""
        for client in self.clients.values():
            client.publish()
        self._clock.at(self._clock.now_ns // plan.INTERVAL_NS * plan.INTERVAL_NS + plan.INTERVAL_NS, self._publish)

    def _subscribe(self) -> None:
        self._say(0, f"{len(self.wishes)} subscriptions")
        began_s, cpu = self._clock.seconds, time.process_time()
        for at, wish in enumerate(self.wishes):
            self.clients[wish.edge].watch(wish.publisher, wish.variable, *wish.qos)
            if at % 500 == 499:
                self.network.run(0.5)
        self._wait(lambda: all(stream.state != "asked" for stream in self._streams()))
        self.outcome.admission_s = time.process_time() - cpu
        self.network.run(5.0)
        self._count()
        self._look()
        self._say(0, f"admitted in {self._clock.seconds - began_s:.0f} virtual s")

    def _wait(self, over: Callable[[], bool]) -> None:
        until_s = self._clock.seconds + SETTLE_S
        while not over() and self._clock.seconds < until_s:
            self.network.run(1.0)

    def _streams(self) -> list[Stream]:
        return [stream for client in self.clients.values() for stream in client.streams]

    def _count(self) -> None:
        outcome = self.outcome
        streams = self._streams()
        outcome.granted = sum(stream.state == "granted" for stream in streams)
        outcome.refusals = {}
        for stream in streams:
            if stream.state == "refused":
                outcome.refusals[stream.code] = outcome.refusals.get(stream.code, 0) + 1
        outcome.unexplained = sum(
            stream.state == "asked" or (stream.state == "refused" and not (stream.code and stream.reason))
            for stream in streams
        )

    # --- failures

    def _fail(self) -> None:
        network, outcome = self.network, self.outcome
        self._failing = True
        self._later(CHANNELS_PER_S, self._fail_channel)
        self._later(ROUTERS_PER_S, self._fail_router)
        for mode, share in enumerate(MODES_AT, 1):
            self._clock.after(share * self._seconds, self._change_mode, mode % 2)
        self._clock.after(FAIL_OVER_AT * self._seconds, self._fail_over)
        gc.collect()
        gc.freeze()  # what is there by now stays to the end
        left_s = self._seconds
        while left_s > 0:
            self._say(
                self._seconds - left_s, f"{outcome.channels_failed} channels, {outcome.routers_failed} routers failed"
            )
            self._mark()
            network.run(min(WINDOW_S, left_s))
            if left_s >= WINDOW_S:
                self._measure(WINDOW_S)
            gc.collect()
            left_s -= WINDOW_S
        self._failing = False

    def _later(self, rate: float, call: Callable[[], None]) -> None:
        self._clock.after(self._rng.expovariate(rate * len(self.network.routers)), call)

    def _fail_channel(self) -> None:
        if not self._failing:
            return
        channel = self._rng.choice(list(self.network.channels.values()))
        if channel.intact:
            self.outcome.channels_failed += 1
            channel.fail()
            self._clock.after(self._rng.uniform(*AWAY_S), channel.mend)
        self._later(CHANNELS_PER_S, self._fail_channel)

    def _fail_router(self) -> None:
        if not self._failing:
            return
        router = self._rng.choice(list(self.network.routers.values()))
        if router.running:
            self.outcome.routers_failed += 1
            router.stop()
            self._clock.after(self._rng.uniform(*AWAY_S), router.start)
        self._later(ROUTERS_PER_S, self._fail_router)

    def _change_mode(self, mode: int) -> None:
        def answered(answer: Answer) -> None:
            note = answer.note if isinstance(answer, Done) else getattr(answer, "reason", "")
            self.outcome.mode_answers.append(f"mode {mode}: {type(answer).__name__} {note}".strip())
            self._modes.answered(self._clock.now_ns)

        self._modes.requested(mode, self._clock.now_ns)
        self.network.operate(self.topology.root, ChangeMode(id=1, mode=mode), answered)

    def _fail_over(self) -> None:
        role = self._rng.choice(self.topology.leaves)
        leader = self.network.leader(role)
        if leader is not None:
            leader.stop()
            self._clock.after(60.0, leader.start)
            self._clock.after(30.0, self._took_over, role, leader.name)

    def _took_over(self, role: str, former: str) -> None:
        leader = self.network.leader(role)
        self.outcome.failed_over = leader is not None and leader.name != former

    # --- what is seen

    def _judge_late(self, client: StatusClient, stream: Stream, published_ns: int) -> None:
        """An event took longer than granted: had it a whole path? Else it waited for a channel, or for its watcher."""
        if published_ns >= stream.granted_ns and self._whole(client, stream, published_ns):
            self.outcome.late.append(
                f"{stream.publisher}/{stream.variable} at {client.router}: the event of {published_ns / 1e9:g} s "
                f"took {(self._clock.now_ns - published_ns) / 1e6:g} ms"
            )
        else:
            self.outcome.held += 1

    def _whole(self, client: StatusClient, stream: Stream, at_ns: int) -> bool:
        """From its publishing to the end of its bound: only a failure in between excuses that it is late or lost."""
        return self._reachability.intact(stream.variable_id, client.router, stream.limit_ns, at_ns, stream.bound_ns)

    def _judge_hole(self, client: StatusClient, stream: Stream, hole: Hole) -> None:
        """Something is missing in a stream: was there an event that had a whole path?"""
        self.outcome.holes += 1
        self.outcome.outages_s.append((hole.before_ns - hole.after_ns - stream.limit_ns) / 1e9)
        name = stream.publisher.removeprefix("plant.")
        publication = next(each for each in self.clients[name].publications if each.variable == stream.variable)
        first_ns = max(hole.after_ns + stream.limit_ns, publication.since_ns, stream.granted_ns)
        last_ns = hole.before_ns - plan.INTERVAL_NS
        at_ns = -(-first_ns // plan.INTERVAL_NS) * plan.INTERVAL_NS
        consecutive = 0
        needed = stream.limit_ns // plan.INTERVAL_NS  # so many published events hold one that is due
        while at_ns <= last_ns:
            consecutive = consecutive + 1 if self._whole(client, stream, at_ns) else 0
            if consecutive >= needed:
                self.outcome.broken.append(
                    f"{stream.publisher}/{stream.variable} at {client.router}: nothing of "
                    f"{at_ns / 1e9:g} s, though a path was whole"
                )
                return
            at_ns += plan.INTERVAL_NS

    def _tables(self) -> dict[str, Table]:
        """The paths of every running router, from its own table."""
        return {name: {(row["id"], row["path"]): _path(router, row) for row in router.paths.rows()}
                for name, router in self.network.routers.items() if router.running}  # fmt: skip

    def _limit(self, one: str, other: str) -> float:
        return self._capacity.get((one, other)) or self._capacity[other, one]

    def _look(self) -> None:
        """Capacity and disjointness, from the tables."""
        outcome = self.outcome
        tables = self._tables()
        outcome.table = max(outcome.table, max(len(table) for table in tables.values()))
        outcome.overloads += checker.overloads(tables, self._limit)
        for (one, other), total in checker.loads(tables).items():
            outcome.fullest = max(outcome.fullest, max(total) / self._limit(one, other))
        onward = checker.hops(tables)
        for client in self.clients.values():
            for stream in client.streams:
                if stream.state == "granted":
                    source = stream.publisher.removeprefix("plant.")
                    of_variable = onward.get(stream.variable_id, {})
                    outcome.shared += not checker.disjoint(of_variable, source, client.router)

    def _mark(self) -> None:
        self._sent = {(name, peer): router.sent(peer) for name, router in self.network.routers.items()
                      for peer in router.node.connections}  # fmt: skip

    def _measure(self, seconds: float) -> None:
        """Events that routers sent over their channels, as bytes, beside what these have."""
        tables = {name: router.installed for name, router in self.network.routers.items()}
        self.outcome.table = max(self.outcome.table, max(len(table) for table in tables.values()))
        found = checker.overloads({name: {key: each[0] for key, each in table.items()}
                                   for name, table in tables.items()}, self._limit)  # fmt: skip
        self.outcome.overloads += found
        for (name, peer), before in self._sent.items():
            rate = (self.network.routers[name].sent(peer) - before) * checker.RECORD / seconds
            self.outcome.busiest = max(self.outcome.busiest, rate / self._limit(name, peer))
            if rate > self._limit(name, peer):
                self.outcome.measured_over.append(f"{name} to {peer}: {rate:.0f} bytes/s")

    # --- the end

    def _mend(self) -> None:
        self._say(self._seconds, "quiet")
        self.network.run(AWAY_S[1] + QUIET_S)
        self._wait(lambda: all(stream.state != "asked" for stream in self._streams()))
        now_ns = self._clock.now_ns
        for client in self.clients.values():
            for stream in client.streams:
                flows = stream.last_ns >= now_ns - stream.limit_ns - plan.INTERVAL_NS - stream.bound_ns
                if stream.state == "granted" and not flows:
                    self.outcome.not_restored.append(f"{stream.publisher}/{stream.variable} at {client.router}")
        self._count()
        self._look()
        streams = self._streams()
        self.outcome.arrivals = sum(stream.arrivals for stream in streams)

    def _remove(self) -> None:
        self._say(self._seconds, "removal")
        for client in self.clients.values():
            client.leave()
        self.network.run(REMOVED_S)
        routers = self.network.routers.values()
        self.outcome.entries_left = sum(len(router.paths) + router.node.engine.status.entries() for router in routers)
        kinds = ("publication", "subscription", "reservation", "promise", "leftover", "decision", "notice", "entity",
                 "claim")  # fmt: skip
        self.outcome.items_left = sum(store.count(kind) for store in self.network.stores.values() for kind in kinds)


def _path(router: Router, row: dict[str, object]) -> Path:
    """A row of the table as a path; the description of its variable is that of the setup."""
    number, path = row["id"], row["path"]
    assert isinstance(number, int)
    assert isinstance(path, int)
    return router.installed[number, path][0]
