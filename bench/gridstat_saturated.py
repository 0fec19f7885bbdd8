"""Filtering and condensation where they count: a router whose only core is busy, a channel that can carry no more."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import msgspec

from bench.gridstat_run import Bench
from bench.load import BUSY, Figures, Row, Session, next_label
from bench.mesh import ask, rows, topology, write_deployment
from bench.peers import chappe as router
from bench.peers.common import running
from bench.processes import START_S, Started, serving
from bench.protocols import Link, chappe
from bench.rounds import ratio
from bench.shaped_pair import FAR, NEAR, ShapedPair
from bench.streams import Listeners, Sink, Stream
from chappe.errors import ChappeError, LinkError
from chappe.status.topology import Topology
from chappe.wire.management import Condense, Function, Input

FAN_OUT, VARIABLES, PERIOD_NS = 10, 1_000, 100_000
WINDOW = 131_072  # events that a publisher is ahead: many rounds of all variables, of which every second one passes
ROUNDS = 5
LINE_BITS = 500_000  # a second, of the shaped channel: 62.5 kB
INPUTS, FUNCTIONS, INPUT_NS = 40, 5, 4_000_000


def filtering(bench: Bench) -> None:
    """The input rate of a router on one core to ten subscribers, who take every event or every second one."""
    quick = bench.options.quick
    row = Row(
        "every event", protocol="status", size=24, topics=VARIABLES, subscribers=FAN_OUT, window=WINDOW,
        period_ns=PERIOD_NS, warm_s=0.3, measured_s=0.5 if quick else 2.0,
    )  # fmt: skip
    cells = (row, replace(row, name="every second event", interval_ns=2 * PERIOD_NS))
    found: dict[str, list[Figures]] = {cell.name: [] for cell in cells}
    lost = 0
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(router.PEER, pinned=True))
        with beside_the_router():
            sessions = [stack.enter_context(Session(broker, cell)) for cell in cells]
        for _ in range(1 if quick else ROUNDS):
            for session in sessions:
                found[session.row.name].append(session.interval())
        for session in sessions:
            total = session.account()
            lost += total.lost + total.reordered + total.wrong + total.dropped
    carried = {
        cell.name: median(one.delivered_per_s for one in found[cell.name]) / FAN_OUT * cell.every for cell in cells
    }
    for cell in cells:
        title = f"one core, {FAN_OUT} subscribers of {cell.name}"
        series = found[cell.name]
        bench.report.show(f"{title}: input", carried[cell.name], "events/s")
        cores = median(one.broker_cores for one in series)
        bench.report.show(f"{title}: router", cores, "cores")
        if cores < BUSY:
            bench.report.note(f"{title}: the router was not busy all the time, it can carry more than shown")
        busiest = median(max(one.publisher_cores, one.subscriber_cores) for one in series)
        bench.report.show(f"{title}: load generator", busiest, "cores, busier half")
    bench.report.compare(
        "filtering half at saturation: input rate, of that without", ratio(*reversed(carried.values())), "times",
        ">=", 1.6,
    )  # fmt: skip
    bench.report.compare("filtering at saturation: lost, out of order", lost, "events", "==", 0)


@contextlib.contextmanager
def beside_the_router() -> Iterator[None]:
    """Children started inside run on the cores that a pinned router leaves."""
    allowed = os.sched_getaffinity(0)
    others = allowed - {max(allowed)}
    os.sched_setaffinity(0, others or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def condensation(bench: Bench) -> None:
    """What a shaped channel serves: events of variables as they are, or through averages of forty."""
    if obstacle := ShapedPair.obstacle():
        raise ChappeError(f"no shaped channel: {obstacle}")
    seconds = 4.0 if bench.options.quick else 20.0
    plain = _plain_per_s(seconds)
    averages = _averages_per_s(seconds)
    bench.report.show("shaped channel: rate of its token bucket", LINE_BITS / 8, "bytes/s")
    bench.report.show("shaped channel: published", FUNCTIONS * INPUTS * 1e9 / INPUT_NS, "events/s")
    bench.report.show("shaped channel: events delivered", plain, "events/s")
    bench.report.show(f"shaped channel: averages of {INPUTS} delivered", averages, "events/s")
    bench.report.compare(
        f"condensing {INPUTS} to 1 on a shaped channel: events served, of those without",
        ratio(averages * INPUTS, plain), "times", ">=", 10,
    )  # fmt: skip


def _plain_per_s(seconds: float) -> float:
    with ShapedMesh() as mesh, mesh.publisher() as traffic, mesh.listeners(traffic.label, traffic.topics) as listeners:
        return _received_per_s(traffic, listeners, seconds)


def _averages_per_s(seconds: float) -> float:
    """In a mesh of its own: what an overloaded channel still holds would be delivered for minutes."""
    with ShapedMesh() as mesh, mesh.publisher() as traffic:
        label = f"average-{next_label()}"
        with mesh.connected("p0") as creator:
            for at in range(FUNCTIONS):
                names = tuple(Input(traffic.label, f"v{at * INPUTS + number:06d}") for number in range(INPUTS))
                function = Function(
                    publisher=label, variable=f"v{at:06d}", inputs=names, calculator="builtin:mean", trigger="time",
                    interval_ns=INPUT_NS,
                )  # fmt: skip
                ask(creator, Condense(id=0, function=function))
            with mesh.listeners(label, FUNCTIONS) as listeners:
                return _received_per_s(traffic, listeners, seconds)


def _received_per_s(traffic: Stream, listeners: Listeners, seconds: float) -> float:
    traffic.start()
    time.sleep(seconds / 4)
    before, start = sum(listeners.received()), time.monotonic()
    time.sleep(seconds)
    return (sum(listeners.received()) - before) / (time.monotonic() - start)


class ShapedMesh:
    """A row of three routers and their broker; the last router is on the far side of a shaped line."""

    def __init__(self) -> None:
        names = ("p0", "i1", "e1")
        made = topology({"cloud": names}, [("p0", "i1"), ("i1", "e1")], inner=("i1",))
        self.topology: Topology = msgspec.structs.replace(
            made,
            broker=tuple(msgspec.structs.replace(one, listen=_moved(one.listen, NEAR)) for one in made.broker),
            router=tuple(
                msgspec.structs.replace(one, listen=_moved((one.listen,), FAR if one.name == "e1" else NEAR)[0])
                for one in made.router
            ),
        )
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ShapedMesh:
        with contextlib.ExitStack() as stack:
            self._line = stack.enter_context(ShapedPair(LINE_BITS))
            file = stack.enter_context(write_deployment(self.topology))
            for name in ("cloud", "p0", "i1", "e1"):
                with self._line.inside(FAR if name == "e1" else NEAR):
                    started = stack.enter_context(Started("chappe.cli", "up", str(file), "--only", name))
                started.until(serving)
            self._await_channels()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def publisher(self) -> Stream:
        with self._line.inside(NEAR):
            return Stream(
                self._address("p0")[1], [], topics=FUNCTIONS * INPUTS, period_ns=INPUT_NS, host=self._address("p0")[0]
            )

    def listeners(self, label: str, topics: int) -> Listeners:
        with self._line.inside(FAR):
            host, port = self._address("e1")
            return Listeners([Sink(port, host=host)], label, topics)

    @contextlib.contextmanager
    def connected(self, name: str) -> Iterator[Link]:
        """A connection to a router or the broker of the near side."""
        with self._line.inside(NEAR):
            link = chappe.connect(self._address(name), None)
        try:
            yield link
        finally:
            link.sock.close()

    def _address(self, name: str) -> tuple[str, int]:
        found = self.topology.routers.get(name)
        url = found.listen if found is not None else self.topology.brokers[name].listen[0]
        host, _, port = url.rpartition("/")[2].partition(":")
        return host, int(port)

    def _await_channels(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            with self.connected("cloud") as link:
                away = [row for what in ("routers", "channels") for row in rows(link, what) if not row["up"]]
            if not away:
                return
            if time.monotonic() > deadline:
                raise LinkError(f"the deployment is not ready within {START_S:g} s: {away[0]} is not up")
            time.sleep(0.1)


def _moved(urls: Sequence[str], host: str) -> tuple[str, ...]:
    """The same ports at another address."""
    return tuple(f"tcp://{host}:{url.rpartition(':')[2]}" for url in urls)
