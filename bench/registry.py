"""Every bench: its name, what it measures, how long it may take, and the options it has besides those of all.

What it imports is small: the help of a command loads no bench.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

Seed = Annotated[int | None, Option(min=0, help="Replay the run that printed it.")]
Trace = Annotated[
    Path | None, Option(metavar="FILE", help="Latencies over time (.csv, .json, .npz) of your own network.")
]


@dataclass(frozen=True)
class Own:
    """The options of a bench that has none of its own."""


@dataclass(frozen=True)
class PeersOptions:
    clients: Annotated[
        Literal["compiled", "python"], Option(help="compiled: one load generator for all; python: each one's client.")
    ] = "compiled"
    peer: Annotated[list[str], Option(help="Compare with this peer only (repeatable).")] = field(default_factory=list)


@dataclass(frozen=True)
class StatusOptions:
    layout: Annotated[Literal["close", "sparse"], Option(help="Table layout of the router.")] = "sparse"


@dataclass(frozen=True)
class GridstatOptions:
    case: Annotated[list[str], Option(help="Run this case only (repeatable).")] = field(default_factory=list)


@dataclass(frozen=True)
class PipelineOptions:
    sizes: Annotated[str, Option(metavar="N,N,…", help="Rows, such as 1e6,1e7,1e8, which is the default.")] = ""
    alert: Annotated[bool, Option(help="Measure also how long an alert takes through a real mesh.")] = True


@dataclass(frozen=True)
class RoutingOptions:
    topologies: Annotated[
        str, Option(metavar="A,B,…", help="Networks of topohub, such as sndlib/germany50; default: twenty.")
    ] = ""
    trace: Trace = None
    seed: Seed = None


@dataclass(frozen=True)
class ChurnOptions:
    nodes: Annotated[int, Option(help="Size of the simulated mesh.")] = 1000
    seconds: Annotated[float, Option(min=0, help="Virtual seconds of churn; 0: ten minutes, or as --quick.")] = 0.0
    seed: Seed = None


@dataclass(frozen=True)
class ManagedOptions:
    nodes: Annotated[int, Option(help="Routers of the simulated deployment.")] = 1000
    seconds: Annotated[float, Option(min=0, help="Virtual seconds of failures; 0: ten minutes, or as --quick.")] = 0.0
    seed: Seed = None


@dataclass(frozen=True)
class DemandOptions:
    sim: Annotated[bool, Option("--sim", help="A simulated mesh with churn instead of real nodes.")] = False
    nodes: Annotated[int, Option(min=10, help="Size of the simulated mesh.")] = 300
    seed: Seed = None


@dataclass(frozen=True)
class CellsOptions:
    case: Annotated[list[str], Option(help="Run this case only (repeatable).")] = field(default_factory=list)
    cells: Annotated[int, Option(min=10, help="Simulated cells of the case scale.")] = 1000
    seed: Seed = None


@dataclass(frozen=True)
class ForecastOptions:
    trace: Trace = None
    seed: Seed = None


@dataclass(frozen=True)
class ExactlyOnceOptions:
    kills: Annotated[int | None, Option(min=0, max=50, help="How many processes are killed; 5.")] = None
    rows: Annotated[int | None, Option(min=1, max=10_000_000, help="How many rows are published; 20,000.")] = None
    seed: Annotated[int, Option(min=0, help="Decides who is killed when.")] = 5


@dataclass(frozen=True)
class HostileOptions:
    attack: Annotated[list[str], Option(help="Run this attack only (repeatable), such as TlsFlood.")] = field(
        default_factory=list
    )


@dataclass(frozen=True)
class HistoryOptions:
    seed: Annotated[int | None, Option(min=0, help="Replay the faults of the run that printed it.")] = None
    seeds: Annotated[int | None, Option(min=1, max=1000, help="Runs, each with the next seed; 10.")] = None
    minutes: Annotated[float | None, Option(min=0.1, max=600, help="Of faults in each run; 2.")] = None


@dataclass(frozen=True)
class CrashOptions:
    seed: Annotated[int, Option(min=0, help="Decides which states a quick run looks at, and which bits flip.")] = 1
    minutes: Annotated[float, Option(min=0.1, max=600, help="After so long the rest is left out, and counted.")] = 9.0


@dataclass(frozen=True)
class SoakOptions:
    minutes: Annotated[float | None, Option(min=0.1, max=10_000, help="How long; 20.")] = None
    seed: Annotated[int | None, Option(min=0, help="Of what comes and goes.")] = None


@dataclass(frozen=True)
class Bench:
    """One command of `chappe bench`. `module` has `run(options, own)` and, if `against`, `compared(options, own)`."""

    name: str
    module: str
    line: str
    minutes: float = 10.0  # the longest it may take
    quick_minutes: float = 2.0
    own: type[Any] = Own
    text: str = ""  # more than the line, for its own help
    examples: tuple[str, ...] = ()
    against: bool = False
    all_as: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # runs of `bench all`, if not one plain run

    @property
    def runs(self) -> Mapping[str, Mapping[str, Any]]:
        """What `bench all` runs: the name of each report, with the options that it is run with."""
        return self.all_as or {self.name: {}}


BENCHES = (
    Bench(
        "peers", "bench.peers_bench",
        "Chappe beside nats-server, Mosquitto, Redis and ZeroMQ: throughput, CPU a message, latency.",
        own=PeersOptions, against=True, all_as={"peers": {}, "peers-python": {"clients": "python"}},
        examples=(
            "peers --quick --peer nats-server",
            "peers --clients python --json python.json --check",
            "peers --against HEAD~1 --check",
        ),
    ),
    Bench(
        "status", "bench.status",
        "100,000 variables through one router: rate, every event compared with the rule, latency, allocations.",
        own=StatusOptions, against=True,
        all_as={"status-sparse": {"layout": "sparse"}, "status-close": {"layout": "close"}},
        examples=("status --layout close --json close.json", "status --against HEAD~1 --check"),
    ),
    Bench(
        "growth", "bench.growth",
        "CPU a message as variables, topic subscriptions and subscribers grow, with fitted exponents.",
    ),
    Bench(
        "client", "bench.client",
        "What one Python process publishes and consumes a second: by message, by batch, by Arrow; beside nats-py.",
        against=True, examples=("client --quick", "client --against HEAD~1 --check"),
    ),
    Bench(
        "slow", "bench.slow",
        "A subscriber that stops reading: what it costs the others, the node's memory, and whose counters show it.",
    ),
    Bench(
        "gridstat", "bench.gridstat",
        "The experiments of the source on a managed mesh: hops, load, multicast, filtering, condensation.",
        minutes=25, quick_minutes=3, own=GridstatOptions,
        examples=("gridstat --quick", "gridstat --case hops --case filtering --json gridstat.json"),
    ),
    Bench(
        "admission", "bench.admission",
        "10,000 subscriptions over two disjoint paths on a power grid of 118 buses: rate, and every path verified.",
    ),
    Bench(
        "redundancy", "bench.redundancy",
        "Routers killed on the path of a stream: nothing lost over two paths, resumed in seconds over one.",
    ),
    Bench(
        "modes", "bench.modes",
        "A mode change over 20 routers and 10,000 subscriptions: time, losses, load; and one with a dead edge.",
    ),
    Bench(
        "failover", "bench.failover",
        "The active broker killed during set-up, on PostgreSQL: the standby finishes, no path is lost or doubled.",
    ),
    Bench(
        "demand", "bench.demand",
        "Variables in a mesh without brokers: what links carry as watchers come and go; gaps when something fails.",
        own=DemandOptions, minutes=30, all_as={"demand": {}, "demand-sim": {"sim": True}},
        examples=("demand --quick", "demand --sim --seed 7 --check"),
    ),
    Bench(
        "cells", "bench.cells.bench",
        "Flows by name over many paths: throughput, shares, failures, what else is on the lines; the source's runs.",
        minutes=30, quick_minutes=5, own=CellsOptions,
        text="Shaped lines between hosts are network namespaces with token buckets: they need root and iproute2.",
        examples=(
            "cells --case local",
            "cells --case b1 --case shares --json cells.json --check",
            "cells --case scale --cells 200 --seed 7",
        ),
    ),
    Bench(
        "tables", "bench.tables",
        "The source's tables: routes over its graphs, measured cost against the interval, on sockets and simulated.",
    ),
    Bench(
        "adaptation", "bench.adaptation",
        "A link of a nine-node mesh becomes 50 ms slower: when messages take another path; flapping; what it costs.",
        examples=("adaptation --quick", "adaptation --json adaptation.json --check"),
    ),
    Bench(
        "xml", "bench.xml_records",
        "Measurements of 100 to 16,000 links as XML: export, parse, query and view, as the source tested them.",
    ),
    Bench(
        "routing", "bench.routing",
        "Delivered latency against an all-knowing shortest path, on real topologies whose latencies change; simulated.",
        own=RoutingOptions,
        examples=(
            "routing --quick",
            "routing --topologies sndlib/polska,topozoo/Abilene --seed 7",
            "routing --trace latencies.csv",
        ),
    ),
    Bench(
        "bandwidth", "bench.bandwidth",
        "Estimated bandwidth against links of 1 Mbit/s to 1 Gbit/s: error, time until it is right, what it costs.",
    ),
    Bench(
        "pipeline", "bench.pipeline",
        "Ingest, link statistics and the live source beside plain Spark, DuckDB and polars; memory; alerts.",
        quick_minutes=6, own=PipelineOptions,
        examples=("pipeline --quick", "pipeline --sizes 1e6,1e7,3e7 --no-alert --json pipeline.json --check"),
    ),
    Bench(
        "churn", "bench.churn",
        "A simulated mesh that one node in a hundred leaves each second: deliveries, maps, state and convergence.",
        minutes=55, own=ChurnOptions,
        examples=("churn --quick", "churn --nodes 1000 --seed 42 --json churn.json --check"),
    ),
    Bench(
        "managed", "bench.managed.bench",
        "A tree of brokers over simulated routers: streams, tables and capacity under failures and changes of mode.",
        minutes=30, own=ManagedOptions,
        examples=("managed --nodes 100 --quick", "managed --nodes 1000 --seed 42 --json managed.json --check"),
    ),
    Bench(
        "clusters", "bench.clusters",
        "States of 100 to 1,000 peers around points and lines: outliers found, false ones, beside the source's rule.",
    ),
    Bench(
        "forecast", "bench.forecast",
        "Forecasts of latencies, with and without a daily pattern, beside the last value and that of a day before.",
        own=ForecastOptions,
        examples=("forecast --quick", "forecast --trace latencies.csv --json forecast.json --check"),
    ),
    Bench(
        "exactly-once", "bench.exactly_once",
        "Publisher, mesh, archive, Spark, table: every acknowledged row once, under kill -9 of each of them.",
        quick_minutes=4, own=ExactlyOnceOptions,
        examples=(
            "exactly-once --quick",
            "exactly-once --kills 5 --rows 100000 --seed 7 --json exactly-once.json --check",
        ),
    ),
    Bench(
        "crash", "bench.crash",
        "A power cut at every system call of archive, audit log and store; failed syncs, full disks, flipped bits.",
        own=CrashOptions, examples=("crash --quick", "crash --minutes 60 --json crash.json --check"),
    ),
    Bench(
        "durable", "bench.durable",
        "Events confirmed when they are on disk, beside JetStream that syncs each: latency of one, rate of many.",
        examples=("durable --quick", "durable --json durable.json --check"),
    ),
    Bench(
        "hostile", "bench.hostile.measured",
        "Attacks of clients, strangers and a malicious node beside an honest stream, in ten interleaved pairs each.",
        minutes=25, quick_minutes=5, own=HostileOptions,
        text="Rate and latency of the stream, the longest turn of the node's loop, its memory, and whether it names "
        "the attacker.",
        examples=("hostile --quick --attack TlsFlood", "hostile --json hostile.json --check"),
    ),
    Bench(
        "history", "bench.history.bench",
        "Mesh, brokers, archive and clients as processes under cuts, pauses, kills, clock jumps and a full disk.",
        minutes=25, own=HistoryOptions,
        text="Clients record every operation and answer; a checker compares that with what is promised. Needs "
        "PostgreSQL; cuts and the full disk need root, clock jumps libfaketime.",
        examples=(
            "history --quick --check",
            "history --seed 7 --minutes 2 --check",
            "history --seeds 10 --json history.json --check",
        ),
    ),
    Bench(
        "soak", "bench.soak.bench",
        "Topics, sessions, routes, inboxes and variables come and go, one peer is down: memory and tables level off.",
        minutes=21, own=SoakOptions,
        examples=("soak --quick", "soak --minutes 20 --json soak.json --check"),
    ),
)  # fmt: skip


def named(name: str) -> Bench:
    return next(bench for bench in BENCHES if bench.name == name)
