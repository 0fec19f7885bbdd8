"""Experiments of `chappe bench gridstat` that need the management plane: condensation, and what nobody had measured."""

from __future__ import annotations

import statistics
import time

from bench.gridstat_run import LOAD_NS, Bench, chain, load, observe, reference, show
from bench.load import next_label
from bench.mesh import Mesh, ask, topology
from bench.protocols import chappe, status
from bench.rounds import ratio
from bench.streams import Listeners, Sink
from chappe.wire import control
from chappe.wire.management import ChangeMode, Condense, Function, Input, SetFlood, Uncondense

SPLIT = ("p0", "i1", "i2", "e1", "e2")
SPLIT_CHANNELS = [("p0", "i1"), ("i1", "i2"), ("i2", "e1"), ("i2", "e2")]
SETUPS, QUICK_SETUPS = 1_000, 50


def condensation(bench: Bench) -> None:
    """9.7: two subscribers take an average every millisecond instead of all its inputs."""
    rate = 40_000
    with Mesh(topology({"cloud": SPLIT}, SPLIT_CHANNELS, inner=SPLIT[1:3])) as mesh:
        sinks = [Sink(mesh.port("e1")), Sink(mesh.port("e2"))]
        with reference(mesh, "p0", ["e2"]) as stream, load(mesh, "p0", sinks, rate, bench.times) as traffic:
            without = observe(mesh, [stream, traffic], bench.times, SPLIT)
        label = f"average-{next_label()}"
        with load(mesh, "p0", [], rate, bench.times) as traffic, reference(mesh, "p0", ["e2"]) as stream:
            names = tuple(Input(traffic.label, f"v{at:06d}") for at in range(traffic.topics))
            function = Function(
                publisher=label, variable="v000000", inputs=names, calculator="builtin:mean", trigger="time",
                interval_ns=LOAD_NS,
            )  # fmt: skip
            creator = chappe.connect(("127.0.0.1", mesh.port("p0")), None)
            ask(creator, Condense(id=0, function=function))
            with Listeners(sinks, label) as listeners:
                before, start = sum(listeners.received()), time.monotonic()
                condensed = observe(mesh, [stream, traffic], bench.times, SPLIT)
                condensed_per_s = (sum(listeners.received()) - before) / (time.monotonic() - start)
            ask(creator, Uncondense(id=0, publisher=label, variable="v000000"))
            creator.sock.close()
    show(bench.report, "without condensation", without.latencies[0][0], without)
    show(bench.report, "with condensation", condensed.latencies[0][0], condensed)
    bench.report.show("with condensation: averages delivered", condensed_per_s, "events/s")
    bench.report.compare(
        "condensation: events to subscribers, of those without (the source: 0.026)",
        ratio(condensed_per_s, without.delivered_per_s), "times", "<=", 0.026,
    )  # fmt: skip
    bench.report.compare(
        "condensation: CPU of the router that splits, of that without (the source: 0.07)",
        ratio(condensed.cores["i2"], without.cores["i2"]), "times", "<=", 0.07,
    )  # fmt: skip
    lost = without.lost + condensed.lost
    bench.report.compare("condensation: lost (the source lost 4.5 %)", lost, "events", "==", 0)


def management(bench: Bench) -> None:
    """Set-up rate, mode change, flooding and a path between clouds, none of which the source measured."""
    count = QUICK_SETUPS if bench.options.quick else SETUPS
    routers = ("e0", "i0", "i1", "e1")
    with chain(*routers, inner=routers[1:3]) as mesh:
        bench.report.show(f"set-up of {count:,} subscriptions over 4 routers", set_up(mesh, count), "subscriptions/s")
        bench.report.show("mode change over 4 routers, p50 of 10", change_modes(mesh, "cloud"), "ms")
        with reference(mesh, "e0", ["e1"], nominal=True) as stream:
            with mesh.operator("cloud") as link:
                ask(link, SetFlood(id=0, publisher=stream.label, variable="v000000"))
            flooded = observe(mesh, [stream], bench.times)
        show(bench.report, "flooded over 4 routers", flooded.latencies[0][0], None)
        bench.report.compare("flooded: lost, repeated", flooded.lost + flooded.reordered, "events", "==", 0)
    clouds = {"west": ("w0", "w1"), "east": ("x0", "x1")}
    with Mesh(topology(clouds, [("w0", "w1"), ("w1", "x0"), ("x0", "x1")])) as mesh:
        rate = set_up(mesh, count, "w0", "x1")
        bench.report.show(f"set-up of {count:,} subscriptions between two clouds", rate, "subscriptions/s")
        bench.report.show("mode change of two clouds, p50 of 10", change_modes(mesh, "root"), "ms")


def set_up(mesh: Mesh, count: int, source: str = "e0", target: str = "e1") -> float:
    """Subscriptions a second, asked for at once."""
    publisher, subscriber = (chappe.connect(("127.0.0.1", mesh.port(name)), None) for name in (source, target))
    publisher.label = subscriber.label = f"set-up-{next_label()}"
    status.register(publisher, count)
    start = time.monotonic()
    status.watch(subscriber, [0] * count)
    span = time.monotonic() - start
    for link in (subscriber, publisher):
        link.sock.close()
    return count / span


def change_modes(mesh: Mesh, broker: str) -> float:
    """Milliseconds from asking a broker for another mode until everything below has it."""
    spans = []
    with mesh.operator(broker) as link:
        for turn in range(10):
            start = time.monotonic()
            answer = ask(link, ChangeMode(id=0, mode=1 if turn % 2 == 0 else 0))
            assert isinstance(answer, control.Done)
            spans.append((time.monotonic() - start) * 1e3)
    return statistics.median(spans)
