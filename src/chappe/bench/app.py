"""`chappe bench …`: each command measures, prints figures against targets, and can write them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from chappe.bench.ending import nothing_left
from chappe.bench.report import CEILING_S, Options, Report
from chappe.errors import ChappeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Measure Chappe beside its peers. Each bench says how long it takes, and has --quick; Ctrl-C ends it.",
)
MINUTES = {"gridstat": 25, "history.bench": 25, "soak.bench": 20, "hostile.measured": 15}  # others: the ceiling

OUT = Path("bench/out")
Quick = Annotated[bool, typer.Option("--quick", help="One short round: shows that it runs, not how fast.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write environment and results there.")]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed.")]
RoundCount = Annotated[int, typer.Option("--rounds", min=1, max=20, help="Interleaved rounds; medians count.")]
Charts = Annotated[Path, typer.Option("--charts", metavar="FOLDER", help="Where PNG charts go.")]


BENCHES: dict[str, tuple[str, dict[str, str]]] = {
    "peers": ("peers_bench", {}),
    "peers-python": ("peers_python", {}),
    "status-sparse": ("status", {"layout": "sparse"}),
    "status-close": ("status", {"layout": "close"}),
    "growth": ("growth", {}),
    "client": ("client", {}),
    "slow": ("slow", {}),
    "gridstat": ("gridstat", {}),
    "admission": ("admission", {}),
    "redundancy": ("redundancy", {}),
    "modes": ("modes", {}),
    "failover": ("failover", {}),
    "tables": ("tables", {}),
    "adaptation": ("adaptation", {}),
    "xml": ("xml_records", {}),
    "routing": ("routing", {}),
    "bandwidth": ("bandwidth", {}),
    "pipeline": ("pipeline", {}),
    "churn": ("churn", {}),
    "clusters": ("clusters", {}),
    "forecast": ("forecast", {}),
    "exactly-once": ("exactly_once", {}),
    "crash": ("crash", {}),
    "durable": ("durable", {}),
    "hostile": ("hostile.measured", {}),
    "history": ("history.bench", {}),
    "soak": ("soak.bench", {}),
}


def _measure(module: str, options: Options, **more: Any) -> int:
    """The exit code of a bench; what is wrong with its surroundings is one line and code 2."""
    longest = more.get("minutes") or MINUTES.get(module, CEILING_S // 60)
    if not options.quick:
        options.console.print(f"takes up to {longest:g} minutes; Ctrl-C ends it and all it has started", style="dim")
    try:
        with nothing_left():
            report: Report = importlib.import_module(f"chappe.bench.{module}").run(options, **more)
        return report.finish(options)
    except KeyboardInterrupt:
        Console(stderr=True).print("chappe bench: ended before it was done; nothing is left running")
        return 130
    except ChappeError as error:
        Console(stderr=True).print(f"[red]chappe bench:[/] {error}", highlight=False)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("chappe"):
            raise
        Console(stderr=True).print(f"[red]chappe bench:[/] {error.name} is missing: pip install 'chappe\\[bench]'")
    return 2


def _run(module: str, options: Options, **more: Any) -> None:
    raise typer.Exit(_measure(module, options, **more))


@app.command("all")
def every(
    folder: Annotated[
        Path, typer.Option("--json", metavar="FOLDER", help="Write NAME.json of each bench there.")
    ] = OUT,
    quick: Quick = False, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Every bench, one after the other; the exit code is the worst of all."""
    worst = 0
    for name, (module, more) in BENCHES.items():
        options = Options(quick, folder / f"{name}.json", check, rounds, charts)
        options.console.rule(f"chappe bench {name}")
        worst = max(worst, _measure(module, options, **more))
    raise typer.Exit(worst)


@app.command()
def peers(
    clients: Annotated[str, typer.Option(help="compiled: one load generator for all; python: each one's client.")]
    = "compiled",
    peer: Annotated[list[str] | None, typer.Option(help="Compare with this peer only (repeatable).")] = None,
    against: Annotated[
        str, typer.Option(metavar="COMMIT", help="Build that commit and compare this tree with it instead of peers.")
    ] = "",
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Chappe beside nats-server, Mosquitto, Redis and ZeroMQ: throughput, CPU a message, latency.

    Examples:

      chappe bench peers --quick --peer nats-server

      chappe bench peers --clients python --json python.json --check

      chappe bench peers --against HEAD~1 --check
    """
    if against:
        _run("peers_against", Options(quick, json, check, rounds, charts), commit=against)
    if clients not in ("compiled", "python"):
        raise typer.BadParameter("choose `compiled` or `python`", param_hint="--clients")
    module = "peers_bench" if clients == "compiled" else "peers_python"
    _run(module, Options(quick, json, check, rounds, charts), only=tuple(peer or ()))


@app.command()
def status(
    layout: Annotated[str, typer.Option(help="Table layout of the router: close or sparse.")] = "sparse",
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """100,000 variables through one router: rate, every event held against the rule, latency, allocations."""
    if layout not in ("close", "sparse"):
        raise typer.BadParameter("choose `close` or `sparse`", param_hint="--layout")
    _run("status", Options(quick, json, check, rounds, charts), layout=layout)


@app.command()
def growth(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """CPU a message as variables, topic subscriptions and subscribers grow, with fitted exponents."""
    _run("growth", Options(quick, json, check, rounds, charts))


@app.command()
def client(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """What one Python process publishes and consumes a second: by message, by batch, by Arrow; beside nats-py."""
    _run("client", Options(quick, json, check, rounds, charts))


@app.command()
def slow(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """A subscriber that stops reading: what it costs the others, the node's memory, and whose counters show it."""
    _run("slow", Options(quick, json, check, rounds, charts))


@app.command()
def gridstat(
    case: Annotated[list[str] | None, typer.Option(help="Run this case only (repeatable).")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """The experiments of the source on a managed mesh: hops, load, multicast, filtering, condensation.

    Each case takes less than ten minutes, all of them about twenty-five.

    Examples:

      chappe bench gridstat --quick

      chappe bench gridstat --case hops --case filtering --json gridstat.json
    """
    _run("gridstat", Options(quick, json, check, rounds, charts), case=tuple(case or ()))


@app.command()
def admission(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """10,000 subscriptions over two disjoint paths on a power grid of 118 buses: rate, and every path verified."""
    _run("admission", Options(quick, json, check, rounds, charts))


@app.command()
def redundancy(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Routers killed on the way of a stream: nothing lost over two paths, resumed in seconds over one."""
    _run("redundancy", Options(quick, json, check, rounds, charts))


@app.command()
def modes(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """A mode change over 20 routers and 10,000 subscriptions: time, losses, load; and one with a dead edge."""
    _run("modes", Options(quick, json, check, rounds, charts))


@app.command()
def failover(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """The active broker killed during set-up, on PostgreSQL: the standby finishes, no path is lost or doubled."""
    _run("failover", Options(quick, json, check, rounds, charts))


@app.command()
def tables(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """The source's tables: routes over its graphs, and measured cost against the interval, on sockets and simulated."""
    _run("tables", Options(quick, json, check, rounds, charts))


@app.command()
def bandwidth(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Estimated bandwidth against links of 1 Mbit/s to 1 Gbit/s: error, time until it is right, what it costs."""
    _run("bandwidth", Options(quick, json, check, rounds, charts))


@app.command()
def pipeline(
    sizes: Annotated[
        str, typer.Option(metavar="N,N,…", help="Rows, such as 1e6,1e7,1e8, which is the default.")
    ] = "",
    alert: Annotated[bool, typer.Option(help="Measure the way of an alert, too, through a real mesh.")] = True,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Ingest, link statistics and the live source beside plain Spark, DuckDB and polars; memory; alerts.

    Examples:

      chappe bench pipeline --quick

      chappe bench pipeline --sizes 1e6,1e7,3e7 --no-alert --json pipeline.json --check
    """
    try:
        wanted = tuple(round(float(text)) for text in sizes.split(",") if text.strip())
    except ValueError:
        raise typer.BadParameter(f"{sizes}: numbers of rows, such as 1e6,1e7", param_hint="--sizes") from None
    _run("pipeline", Options(quick, json, check, rounds, charts), sizes=wanted, alert=alert)


@app.command()
def routing(
    topologies: Annotated[
        str, typer.Option(metavar="A,B,…", help="Networks of topohub, such as sndlib/germany50; default: twenty.")
    ] = "",
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Latencies over time (.csv, .json, .npz) of your own network.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay the run that printed it.")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Delivered latency against an all-knowing shortest path, on real topologies whose latencies change; simulated.

    Examples:

      chappe bench routing --quick

      chappe bench routing --topologies sndlib/polska,topozoo/Abilene --seed 7

      chappe bench routing --trace latencies.csv
    """
    names = tuple(name.strip() for name in topologies.split(",") if name.strip())
    _run("routing", Options(quick, json, check, rounds, charts), topologies=names, trace=trace, seed=seed)


@app.command()
def churn(
    nodes: Annotated[int, typer.Option(help="Size of the simulated mesh.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0, help="Virtual seconds of churn; 0: ten minutes, or as --quick.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay the run that printed it.")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """A simulated mesh that one node in a hundred leaves each second: deliveries, maps, state and convergence.

    Examples:

      chappe bench churn --quick

      chappe bench churn --nodes 1000 --seed 42 --json churn.json --check
    """
    _run("churn", Options(quick, json, check, rounds, charts), nodes=nodes, seed=seed, seconds=seconds)


@app.command()
def adaptation(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """A link of a nine-node mesh becomes 50 ms slower: when messages take another way; flapping; what measuring costs.

    Examples:

      chappe bench adaptation --quick

      chappe bench adaptation --json adaptation.json --check
    """
    _run("adaptation", Options(quick, json, check, rounds, charts))


@app.command()
def clusters(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """States of 100 to 1,000 peers around points and lines: outliers found and false ones, beside the source's rule."""
    _run("clusters", Options(quick, json, check, rounds, charts))


@app.command()
def forecast(
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Latencies over time (.csv, .json, .npz) of your own network.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay the run that printed it.")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Forecasts of latencies, with and without a daily pattern, beside the last value and that of a day before.

    Examples:

      chappe bench forecast --quick

      chappe bench forecast --trace latencies.csv --json forecast.json --check
    """
    _run("forecast", Options(quick, json, check, rounds, charts), seed=seed, trace=trace)


@app.command("exactly-once")
def exactly_once(
    kills: Annotated[int | None, typer.Option(min=0, max=50, help="How many processes are killed; 5.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, max=10_000_000, help="How many rows are published; 20,000.")]
    = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides who is killed when.")] = 5,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Publisher, mesh, archive, Spark, table: every acknowledged row once, under kill -9 of each of them.

    Examples:

      chappe bench exactly-once --quick

      chappe bench exactly-once --kills 5 --rows 100000 --seed 7 --json exactly-once.json --check
    """
    _run("exactly_once", Options(quick, json, check, rounds, charts), kills=kills, rows=rows, seed=seed)


@app.command()
def hostile(
    attack: Annotated[list[str] | None, typer.Option(help="Run this attack only (repeatable), such as TlsFlood.")]
    = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Attacks of clients, strangers and a malicious node beside an honest stream, in ten interleaved pairs each.

    Rate and latency of the stream, the longest turn of the node's loop, its memory, and whether it names the attacker.

    Examples:

      chappe bench hostile --quick --attack TlsFlood

      chappe bench hostile --json hostile.json --check
    """
    _run("hostile.measured", Options(quick, json, check, rounds, charts), attack=tuple(attack or ()))


@app.command()
def history(
    seed: Annotated[int | None, typer.Option(min=0, help="Replay the faults of the run that printed it.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="Runs, each with the next seed; 10.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, max=600, help="Of faults in each run; 2.")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Mesh, brokers, archive and clients as processes under cuts, pauses, kills, clock jumps and a full disk.

    Clients record every operation and answer; a checker compares that with what is promised. Needs PostgreSQL; cuts and
    the full disk need root, clock jumps libfaketime.

    Examples:

      chappe bench history --quick --check

      chappe bench history --seed 7 --minutes 2 --check

      chappe bench history --seeds 10 --json history.json --check
    """
    options = Options(quick, json, check, rounds, charts)
    _run("history.bench", options, seed=seed, seeds=seeds, minutes=minutes)


@app.command()
def crash(
    seed: Annotated[int, typer.Option(min=0, help="Decides which states a quick run looks at, and which bits flip.")]
    = 1,
    minutes: Annotated[float, typer.Option(min=0.1, max=600, help="After so long the rest is left out, and counted.")]
    = 9.0,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """A power cut at every system call of archive, audit log and store; failed syncs, full disks, flipped bits, lies.

    Examples:

      chappe bench crash --quick

      chappe bench crash --minutes 60 --json crash.json --check
    """
    _run("crash", Options(quick, json, check, rounds, charts), seed=seed, minutes=minutes)


@app.command()
def soak(
    minutes: Annotated[float | None, typer.Option(min=0.1, max=10_000, help="How long; 20.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of what comes and goes.")] = None,
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Topics, sessions, routes, inboxes and variables come and go, one peer is down: memory and tables level off.

    Examples:

      chappe bench soak --quick

      chappe bench soak --minutes 20 --json soak.json --check
    """
    _run("soak.bench", Options(quick, json, check, rounds, charts), minutes=minutes, seed=seed)


@app.command()
def durable(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Events confirmed when they are on disk, beside JetStream that syncs each: latency of one, rate of many.

    Examples:

      chappe bench durable --quick

      chappe bench durable --json durable.json --check
    """
    _run("durable", Options(quick, json, check, rounds, charts))


@app.command("xml")
def xml_records(
    quick: Quick = False, json: Json = None, check: Check = False, rounds: RoundCount = 5, charts: Charts = OUT,
) -> None:  # fmt: skip
    """Measurements of 100 to 16,000 links as XML: export, parse, query and view, as the source tested them."""
    _run("xml_records", Options(quick, json, check, rounds, charts))


if __name__ == "__main__":
    app()
