"""`chappe bench gridstat`: the experiments of the source, beside its figures, on a managed mesh of real processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from statistics import median

from bench import gridstat_extra, gridstat_saturated, gridstat_source
from bench.gridstat_run import LOAD_NS, Bench, Run, Times, chain, load, observe, reference, show
from bench.gridstat_source import Table
from bench.mesh import Mesh, rows, topology
from bench.progress import followed
from bench.protocols import chappe
from bench.registry import GridstatOptions
from bench.relays import RelayChain
from bench.report import Options, Report
from bench.rounds import ratio
from bench.streams import Sink, Stream
from chappe.errors import ChappeError
from chappe.status.allocation import latency_fit

HOPS = 7
ROUNDS = 5  # of our routers and of relays in turn


def run(options: Options, own: GridstatOptions) -> Report:
    """All cases, or those named."""
    report = Report("gridstat")
    times = Times(0.5, 1.5) if options.quick else Times(10.0, 60.0)
    unknown = [name for name in own.case if name not in CASES]
    if unknown:
        raise ChappeError(f"--case {unknown[0]}: there is no such case; choose from {', '.join(CASES)}")
    bench = Bench(options, report, times)
    for name in followed(options.console, "gridstat", own.case or list(CASES)):
        options.console.print(f"[bold]{name}[/]: {CASES[name][0]}")
        began = time.monotonic()
        CASES[name][1](bench)
        options.console.print(f"  {time.monotonic() - began:.0f} s")
    report.note(f"each case: {times.warm_s:g} s of warm-up, {times.measured_s:g} s measured")
    report.charts += [gridstat_source.chart(options.charts, table) for table in bench.tables]
    return report


def lower_bound(bench: Bench) -> None:
    """9.1: two edges, one reference variable."""
    with chain("e0", "e1") as mesh, reference(mesh, "e0", ["e1"]) as stream:
        outcome = observe(mesh, [stream], bench.times)
    mine = outcome.latencies[0][0]
    show(bench.report, "two edges, idle", mine, outcome)
    bench.report.compare(
        "two edges, idle: mean latency, of the source's 0.419 ms", mine.mean_us / 419, "times", "<=", 1
    )


def one_router(bench: Bench) -> None:
    """9.3: load through one router."""
    points = []
    rates = (10_000, 50_000) if bench.options.quick else (10_000, 31_000, 50_000, 250_000)
    with chain("e0", "i0", "e1", inner=["i0"]) as mesh:
        for rate in rates:
            with (
                reference(mesh, "e0", ["e1"]) as stream,
                load(mesh, "e0", [Sink(mesh.port("e1"))], rate, bench.times) as traffic,
            ):
                outcome = observe(mesh, [stream, traffic], bench.times, ["e0", "i0", "e1"])
            mine = outcome.latencies[0][0]
            show(bench.report, f"one router, {rate:,} events/s", mine, outcome)
            bench.report.compare(f"one router, {rate:,} events/s: lost", outcome.lost, "events", "==", 0)
            points.append((rate, mine.mean_us))
    bench.tables.append(Table("load on one router", "events/s", "mean latency (us)", points, gridstat_source.LOAD))


def hops(bench: Bench) -> None:
    """9.4: 1 to 7 routers; with the heavier load in turn with bare relays, with the lighter one the model is fitted."""
    routers = ["e0", *(f"i{number}" for number in range(HOPS))]
    runs: list[latency_fit.Run] = []
    further, bare = [], []
    with chain(*routers) as mesh:
        light = _through(bench, mesh, routers, 18_000, bench.times)
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(_through(bench, mesh, routers, 50_000, bench.times.part(ROUNDS)))
            first, last = rounds[-1].latencies[1]
            further.append((last.mean_us - first.mean_us) / (HOPS - 1))
            bare.append(_relay_hop(50_000, bench.times.part(ROUNDS)))
    mine = median(further)
    bench.report.show("latency of each further hop at 50,000 events/s", mine, "us")
    bench.report.show("the same, by round", min(further), f"to {max(further):.0f} us")
    bench.report.show("relay: latency of each further hop", median(bare), "us")
    bench.report.show("the same, by round", min(bare), f"to {max(bare):.0f} us")
    bench.report.show("7 hops: cores of all routers", median(sum(one.cores.values()) for one in rounds), "cores")
    bench.report.compare(
        "latency of each further hop at 50,000 events/s, of the source's 0.532 ms", mine / 532, "times", "<", 0.2
    )
    bench.report.compare(
        "latency of each further hop, of a bare relay's", ratio(mine, median(bare)), "times", "<=", 1.7
    )  # fmt: skip
    heavy = [median(one.latencies[0][at].mean_us for one in rounds) for at in range(HOPS)]
    for rate, means in ((18_000, [one.mean_us for one in light.latencies[0]]), (50_000, heavy)):
        for number, mean_us in enumerate(means, 1):
            bench.report.show(f"{number} hops, {rate:,} events/s: mean", mean_us, "us")
            runs.append(latency_fit.Run(number + 1, rate / 1000, mean_us / 1000))
    model, error_ms = latency_fit.fit(runs)
    bench.report.show("latency model: once a path", model.reference_ms * 1000, "us")
    bench.report.show("latency model: each idle router", model.router_ms * 1000, "us")
    bench.report.show("latency model: each router, more for 1,000 events/s", model.load_ms * 1000, "us")
    bench.report.compare("latency model: error a run, of the source's 0.104 ms", error_ms / 0.104, "times", "<=", 1)
    points = list(enumerate(heavy, 1))
    bench.tables.append(Table("hops at 50,000 events/s", "routers", "mean latency (us)", points, gridstat_source.HOPS))


def _through(bench: Bench, mesh: Mesh, routers: Sequence[str], rate: int, times: Times) -> Run:
    """The reference to every router, the load to the first and the last."""
    sinks = [Sink(mesh.port(routers[1])), Sink(mesh.port(routers[-1]))]
    with reference(mesh, "e0", routers[1:]) as stream, load(mesh, "e0", sinks, rate, times) as traffic:
        outcome = observe(mesh, [stream, traffic], times, routers)
    lost = outcome.lost + outcome.reordered
    bench.report.compare(f"7 hops, {rate:,} events/s: lost, out of order", lost, "events", "==", 0)
    return outcome


def _relay_hop(rate: float, times: Times) -> float:
    """What one more bare relay costs, from chains of 1 and of 7."""
    means = []
    for count in (1, HOPS):
        with RelayChain(count) as relays:
            topics = round(rate * LOAD_NS / 1e9)
            with Stream(
                relays.source, [Sink(relays.sink)], topics=topics, period_ns=LOAD_NS, protocol="relay"
            ) as stream:
                means.append(observe(None, [stream], times).latencies[0][0].mean_us)
    return (means[1] - means[0]) / (HOPS - 1)


TREE = ("e0", "i0", "i1", "i2", "i3", "b0", "b1", "b2", "b3")
BRANCHES = ("b0", "b1", "b2", "b3")
TREE_CHANNELS = [("e0", "i0"), ("i0", "i1"), ("i1", "i2"), ("i2", "i3"), *zip(TREE[1:5], BRANCHES, strict=True)]


def tree() -> Mesh:
    """A row of four routers, each with a branch."""
    return Mesh(topology({"cloud": TREE}, TREE_CHANNELS, inner=TREE[1:5]))


def multicast(bench: Bench) -> None:
    """9.5: every load variable to four branches, beside four streams of their own."""
    rate = 41_000
    with tree() as mesh:
        sinks = [Sink(mesh.port(name)) for name in BRANCHES]
        first = _carried(mesh)
        with reference(mesh, "e0", ["b3"]) as stream, load(mesh, "e0", sinks, rate, bench.times) as traffic:
            shared = observe(mesh, [stream, traffic], bench.times, TREE)
        second = _carried(mesh)
        with contextlib.ExitStack() as stack:
            apart = [stack.enter_context(load(mesh, "e0", [sink], rate, bench.times)) for sink in sinks]
            alone = observe(mesh, apart, bench.times, TREE)
        third = _carried(mesh)
    show(bench.report, f"four branches, {rate:,} events/s", shared.latencies[0][0], shared)
    bench.report.compare("multicast: lost (the source lost 11 %)", shared.lost + alone.lost, "events", "==", 0)
    bench.report.compare(
        "multicast: events on the first channel, of four separate streams'", ratio(second - first, third - second),
        "times", "<=", 0.26,
    )  # fmt: skip
    saved = ratio(sum(shared.cores.values()), sum(alone.cores.values()))
    bench.report.show("multicast: CPU of all routers, of four separate streams'", saved, "times")
    bench.report.compare(
        "multicast: CPU of a router that splits, of one that does not (the source: above 2)",
        ratio(shared.cores["i1"], shared.cores["i3"]), "times", "<=", 2,
    )  # fmt: skip


def _carried(mesh: Mesh) -> int:
    """Events that the publisher's edge has sent on its only channel."""
    link = chappe.connect(("127.0.0.1", mesh.port("e0")), None)
    (row,) = [row for row in rows(link, "links") if row["name"] == "i0"]
    link.sock.close()
    return int(row["status_out"])


def filtering(bench: Bench) -> None:
    """9.6: all four branches at half the rate."""
    rate, runs = 31_000, {}
    with tree() as mesh:
        for filters in (0, 4):
            sinks = [
                Sink(mesh.port(name), 2 * LOAD_NS if at < filters else LOAD_NS) for at, name in enumerate(BRANCHES)
            ]  # fmt: skip
            with (
                reference(mesh, "e0", ["b3"]) as stream,
                load(mesh, "e0", sinks, rate, bench.times, nominal=True) as traffic,
            ):
                runs[filters] = observe(mesh, [stream, traffic], bench.times, TREE)
            show(bench.report, f"{filters} of 4 branches at half rate", runs[filters].latencies[0][0], runs[filters])
            lost = f"{filters} of 4 branches at half rate: lost (the source lost 3.5 % and 0.7 %)"
            bench.report.compare(lost, runs[filters].lost, "events", "==", 0)
    inside = TREE[1:5]
    saved = ratio(sum(runs[4].cores[name] for name in inside), sum(runs[0].cores[name] for name in inside))
    bench.report.compare("filtering at half rate: CPU of the four routers, of that without", saved, "times", "<=", 0.6)
    bench.report.compare(
        "filtering at half rate: deliveries, of those without",
        ratio(runs[4].delivered_per_s, runs[0].delivered_per_s), "times", "<=", 0.51,
    )  # fmt: skip


CASES: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "lower-bound": ("two edges, idle (9.1)", lower_bound),
    "load": ("load on one router (9.3)", one_router),
    "hops": ("1 to 7 routers (9.4)", hops),
    "multicast": ("one stream to four branches (9.5)", multicast),
    "filtering": ("branches at half rate (9.6)", filtering),
    "condensation": ("an average in the network (9.7)", gridstat_extra.condensation),
    "filtering-saturated": ("half the events to ten subscribers, a router of one core", gridstat_saturated.filtering),
    "condensation-saturated": ("averages over a shaped channel", gridstat_saturated.condensation),
    "management": ("set-up, mode change, flooding, recovery, two clouds", gridstat_extra.management),
}
