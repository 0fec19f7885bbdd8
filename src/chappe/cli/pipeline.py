"""`chappe pipeline`: run the jobs of the data pipeline, list them, look at their tables."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from chappe.cli import _pipeline_report
from chappe.cli._failures import FAILED, exit_code, say, say_error
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.settings import Settings, assigned, load

if TYPE_CHECKING:
    from chappe.pipeline.job import Job
    from chappe.pipeline.runner import Place, Told

EXAMPLES = (
    "chappe pipeline run ingest links --once --archive history --work work",
    "chappe pipeline run all --continuous --archive history --log log --node tcp://127.0.0.1:7400",
    "chappe pipeline run links --once --archive s3://grid/history --master spark://head:7077",
)
app = typer.Typer(
    no_args_is_help=True, help="Turn what a mesh saw into tables, forecasts, alerts and advice, on Spark."
)


_pipeline_report.add(app)


@app.command(epilog="\n\n".join(("Examples:", *(f"  [bold]{example}[/bold]" for example in EXAMPLES))))
def run(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Names or ids of jobs; all.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, then end (the default).")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until Ctrl-C or SIGTERM.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="TOML with a table pipeline; options go first.")
    ] = None,
    archive: Annotated[str, typer.Option(metavar="URI", help="Folder or URI of the archive's segments.")] = "",
    log: Annotated[str, typer.Option(metavar="FOLDER", help="Folder of the archive's live log.")] = "",
    source: Annotated[str, typer.Option(help="Name of one archive, where several share the folder.")] = "",
    work: Annotated[str, typer.Option(metavar="FOLDER", help="For tables and checkpoints; work if not given.")] = "",
    node: Annotated[str, typer.Option(metavar="URL", help="Publish alerts, advice and variables to this node.")] = "",
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master; all cores of this machine if none.")] = "",
    connect: Annotated[str, typer.Option(metavar="URL", help="Spark Connect server, sc://host:15002.")] = "",
    parameters: Annotated[
        list[str] | None, typer.Option("--set", metavar="JOB.NAME=VALUE", help="A parameter of a job; again for more.")
    ] = None,
) -> None:
    """Run jobs: each takes what it has not seen yet, or computes its tables anew."""
    given = {
        name: value
        for name, value in {
            "archive": archive, "log": log, "source": source, "work": work, "node": node, "master": master,
            "connect": connect,
        }.items() if value
    }  # fmt: skip
    with _reported():
        if once and continuous:
            raise ConfigError("--once or --continuous, not both")
        settings = load(file) if file else Settings()
        if master:
            settings = msgspec.structs.replace(settings, connect="")
        if connect:
            settings = msgspec.structs.replace(settings, master="")
        settings = msgspec.structs.replace(settings, **given, set=assigned(parameters or (), settings.set))
        well = _run(settings, jobs or list(settings.jobs), continuous)
    if not well:
        raise typer.Exit(FAILED)


@app.command("ls")
def list_jobs() -> None:
    """List jobs with what they read and write, and their parameters."""
    with _reported():
        _spark_or_leave()
        from chappe.pipeline import catalogue
        from chappe.pipeline.job import parameters as of

        console = Console(soft_wrap=True, highlight=False)
        for job in catalogue.find(["all"]):
            console.print(f"[bold]{job.id}  {job.name}[/bold]  {escape(job.line)}")
            console.print(
                "  reads   " + ", ".join(each.replace("raw/", "archive: ") for each in job.reads), markup=False
            )
            console.print("  writes  " + ", ".join(job.writes), markup=False)
            for name, (default, explained) in of(job).items():
                console.print(f"  --set {job.name}.{name}={default}  {explained}", markup=False)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table; without one, all are listed.")] = None,
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="Where jobs keep their tables.")] = Path("work"),
    rows: Annotated[int, typer.Option(min=1, help="How many of the newest rows.")] = 20,
) -> None:
    """Print the newest rows of a table, or list the tables there are. Needs no Spark."""
    with _reported():
        from chappe.pipeline.shown import listing, newest

        Console(soft_wrap=True).print(listing(work) if name is None else newest(work, name, rows))


def _run(settings: Settings, names: list[str], continuous: bool) -> bool:
    _spark_or_leave(settings.connect)
    from chappe.pipeline import catalogue
    from chappe.pipeline.job import configured
    from chappe.pipeline.runner import Place, Runner
    from chappe.pipeline.spark import session

    if not names:
        raise ConfigError(f"no job is given; there are: {', '.join(catalogue.ENTRIES)}, or all")
    found = catalogue.find(names)
    strange = set(settings.set) - {job.name for job in found}
    if strange:
        raise ConfigError(f"parameters of {', '.join(sorted(strange))}, which does not run")
    jobs = [configured(job, settings.set.get(job.name, {})) for job in found]
    place = Place(
        Path(settings.work).absolute(), _absolute(settings.archive), settings.log, settings.source, settings.node,
        settings.max_rows, settings.trigger_s,
    )  # fmt: skip
    stop = Event()
    signal.signal(signal.SIGTERM, lambda number, frame: _stop(stop, number, frame))
    signal.signal(signal.SIGINT, lambda number, frame: _stop(stop, number, frame))
    say("starting Spark …")
    spark = session(settings.master, settings.connect, settings.spark)
    try:
        with Board(jobs, place) as board:
            runner = Runner(spark, place, jobs, board.update)
            well = runner.continuous(stop) if continuous else runner.once(stop)
    finally:
        spark.stop()
    for reason in runner.failures.values():
        say_error(reason)
    return well


def _stop(stop: Event, number: int, frame: FrameType | None) -> None:
    stop.set()


def _absolute(uri: str) -> str:
    return uri if not uri or "://" in uri else str(Path(uri).absolute())


def _spark_or_leave(connect: str = "") -> None:
    from chappe.pipeline.spark import missing

    if reason := missing(bool(connect)):
        say_error(reason)
        raise typer.Exit(FAILED)


@contextmanager
def _reported() -> Iterator[None]:
    """An expected error is one message and the exit code of its kind."""
    try:
        yield
    except (ChappeError, OSError) as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None


class Board:
    """What every job does, while it does it: a table that is drawn again, or lines where nobody looks."""

    def __init__(self, jobs: list[Job], place: Place) -> None:
        self._states: dict[str, Told | None] = {job.name: None for job in jobs}
        self._console = Console(stderr=True)
        self._live = Live(self._table(), console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *ended: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def update(self, told: Told) -> None:
        """A job says what it does."""
        before = self._states.get(told.job)
        self._states[told.job] = told
        if self._console.is_terminal:
            self._live.update(self._table())
        elif before is None or before.state != told.state:
            say(f"{told.job}: {told.state}" + (f", {told.rows} rows" if told.rows else ""))

    def _table(self) -> Table:
        table = Table("job", "state", "rows", box=None, pad_edge=False)
        for name, told in self._states.items():
            table.add_row(name, "…" if told is None else told.state, str(told.rows) if told and told.rows else "")
        return table
