"""`chappe aggregate`: run an aggregator, control monitors, and ask what is stored (MR-091, MR-093 to MR-100)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chappe.cli import _aggregate_files, _aggregate_orders
from chappe.cli._failures import exit_code, say, say_error
from chappe.cli._stored import Stored, display_row, duration_ns, failing, link_named, moment, since_ns
from chappe.cli._tables import Row, print_json, print_table
from chappe.cli._target import targeted
from chappe.errors import ChappeError

app = typer.Typer(help="Run an aggregator of measurements, and ask what it has stored.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")]
Last = Annotated[str, typer.Option("--last", metavar="DURATION", help="Only of this time: 90s, 15m, 2h, 7d, 1w.")]
Link = Annotated[str, typer.Argument(metavar="LINK", help="UUID, URI, or NODE-PEER.", show_default=False)]
ToFile = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the aggregator.", show_default=False)]
COLUMNS = ("node", "peer", "uri", "transport", "latency_ms", "deviation_ms", "jitter_ms", "loss", "bandwidth", "cost")

_aggregate_files.add(app)
_aggregate_orders.add(app)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate run east.toml[/bold]")
def run(file: ToFile) -> None:
    """Run an aggregator until Ctrl-C or SIGTERM; a line `serving` says that it is up."""
    from chappe.aggregation.process import run as run_process

    try:
        code = run_process(file)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate check east.toml[/bold]")
def check(file: ToFile) -> None:
    """Say what is wrong with the file of an aggregator: key and reason."""
    from chappe.aggregation.config import load

    with failing():
        load(file)
    typer.echo(f"{file}: ok")


@app.command(
    epilog="Example:\n\n  [bold]chappe aggregate links --store east.db --where 'latency_ms > 80 and loss > 0.01'[/bold]"
)
@targeted
def links(
    stored: Stored,
    where: Annotated[
        str, typer.Option("--where", help="Only those for which it holds: METRIC > NUMBER, and, or.")
    ] = "",
    as_json: Json = False,
) -> None:
    """The newest measurement of each end of each link."""
    from msgspec import to_builtins

    from chappe.aggregation import conditions
    from chappe.aggregation.averages import current

    with failing(), stored.open() as store:
        condition = conditions.sql(conditions.parse(where)) if where else "1 = 1"
        found = current(store, condition, stored.view())
    if as_json:
        print_json(to_builtins(found))
        return
    print_table([{name: getattr(each, name) for name in COLUMNS} | {"at": moment(each.stamp_ns)} for each in found])


@app.command(epilog="Example:\n\n  [bold]chappe aggregate history tcp://host:9000 --last 2h --store east.db[/bold]")
@targeted
def history(
    stored: Stored,
    link: Link,
    last: Last = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="The newest so many.")] = 1000,
    as_json: Json = False,
) -> None:
    """The measurements of a link, oldest first, and what the next latency will probably be."""
    from msgspec import to_builtins

    from chappe.aggregation.averages import history as read
    from chappe.aggregation.forecast import forecast

    with failing(), stored.open() as store:
        view = stored.view()
        found = read(store, link_named(store, link, view), since_ns=since_ns(last), limit=limit, view=view)
    if as_json:
        print_json(to_builtins(found))
        return
    print_table([{"at": moment(each.stamp_ns)} | {name: getattr(each, name) for name in COLUMNS} for each in found])
    said = forecast([each.latency_ms for each in found if each.latency_ms is not None])
    if said is not None:
        say(f"next latency: {said.value:.3f} ms by {said.method}, off by {said.error:.3f} ms on average")


@app.command(
    epilog="Examples:\n\n  [bold]chappe aggregate averages --per hour --last 1d --store east.db[/bold]\n\n"
    "  [bold]chappe aggregate averages --by transport,client --last 7d --store east.db[/bold]"
)
@targeted
def averages(
    stored: Stored,
    by: Annotated[
        str, typer.Option(help="link, uri, node, client, transport, realm, profile; several with commas.")
    ] = "uri",
    per: Annotated[str, typer.Option(help="hour, day, week or a duration; without: one mean over all.")] = "",
    last: Last = "",
    as_json: Json = False,
) -> None:
    """Mean of each metric by link, transport or client, for each hour, day, week or any other time."""
    from chappe.aggregation.averages import averages as read

    with failing(), stored.open() as store:
        period_ns = duration_ns(per) if per else None
        names = tuple(name for name in by.split(",") if name)
        _print(read(store, by=names, per_ns=period_ns, since_ns=since_ns(last), view=stored.view()), as_json)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate hours tcp://host:9000 --last 4w --store east.db[/bold]")
@targeted
def hours(
    stored: Stored,
    link: Link,
    week: Annotated[bool, typer.Option("--week", help="168 hours of the week instead of 24 of the day.")] = False,
    last: Last = "",
    as_json: Json = False,
) -> None:
    """The profile of a link by the hour of the day, UTC."""
    from chappe.aggregation.averages import by_hour

    with failing(), stored.open() as store:
        view = stored.view()
        name = link_named(store, link, view)
        _print(by_hour(store, name, since_ns=since_ns(last), week=week, view=view), as_json)


@app.command(
    epilog="Example:\n\n  [bold]chappe aggregate bottlenecks --metric latency_ms --last 1d --store east.db[/bold]"
)
@targeted
def bottlenecks(
    stored: Stored,
    metric: Annotated[str, typer.Option(help="cost, latency_ms, deviation_ms, jitter_ms, jitter or loss.")] = "cost",
    factor: Annotated[float, typer.Option(min=1, help="Times the median of all links.")] = 2.0,
    last: Last = "",
    as_json: Json = False,
) -> None:
    """Links that are much worse than the others, at which hours, and the best way around each."""
    from chappe.aggregation.mining import detours

    with failing(), stored.open() as store:
        found = detours(store, metric=metric, factor=factor, since_ns=since_ns(last), view=stored.view())
        _print(found, as_json)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate important --number 5 --last 1d --store east.db[/bold]")
@targeted
def important(
    stored: Stored,
    number: Annotated[int, typer.Option(min=1, max=1000, help="How many links.")] = 10,
    per: Annotated[str, typer.Option(help="hour, day, week or a duration.")] = "hour",
    last: Last = "1d",
    as_json: Json = False,
) -> None:
    """The history of the links whose cost was advertised most often: those that steer routes."""
    from chappe.aggregation.averages import averages as read
    from chappe.aggregation.averages import important as chosen

    with failing(), stored.open() as store:
        view, since = stored.view(), since_ns(last)
        rows: list[Row] = []
        for link in chosen(store, number, since, view):
            rows += read(store, by=("uri",), per_ns=duration_ns(per), since_ns=since, link=link, view=view)
        _print(rows, as_json)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate alerts --all --store east.db[/bold]")
@targeted
def alerts(
    stored: Stored,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    last: Last = "",
    as_json: Json = False,
) -> None:
    """Alerts that are raised now, newest last."""
    from chappe.store.records import EVENT_COLUMNS

    with failing(), stored.open() as store:
        if everything:
            sql = f"SELECT {', '.join(EVENT_COLUMNS)} FROM perf_alert_event WHERE stamp_ns >= :since"
            rows = store.query(sql, since=since_ns(last))
        else:
            rows = store.open_events()
    found = [dict(zip(EVENT_COLUMNS, row, strict=True)) for row in rows]
    _print(sorted(found, key=lambda row: row["stamp_ns"]), as_json)


@app.command(epilog="Example:\n\n  [bold]chappe aggregate directory --store east.db[/bold]")
@targeted
def directory(stored: Stored, as_json: Json = False) -> None:
    """Who produces and who consumes measurements, and when each was heard last."""
    with failing(), stored.open() as store:
        rows = store.query("SELECT kind, name, realm, heard_ns, details FROM perf_party ORDER BY kind, realm, name")
    _print([dict(zip(("kind", "name", "realm", "heard_ns", "details"), row, strict=True)) for row in rows], as_json)


@app.command(
    epilog="Example:\n\n  [bold]chappe aggregate sql 'select node, max(latency_ms) from perf_link group by node' "
    "--store east.db[/bold]"
)
@targeted
def sql(
    stored: Stored,
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="One statement, which can only read.", show_default=False)
    ],
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows at most.")] = 10_000,
    as_json: Json = False,
) -> None:
    """Ask the tables perf_record, perf_link, perf_alert_rule, perf_alert_event and perf_party."""
    with failing(), stored.open() as store:
        names, rows = store.select(statement, limit)
    _print([dict(zip(names, row, strict=True)) for row in rows], as_json, plain=True)


def _print(rows: list[dict[str, Any]], as_json: bool, plain: bool = False) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(rows if plain else [display_row(row) for row in rows], everything=plain)
