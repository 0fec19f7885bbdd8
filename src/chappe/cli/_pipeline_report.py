"""`chappe pipeline report`: the tables of jobs as one HTML file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chappe.cli._failures import exit_code, failures, say, say_error
from chappe.errors import ConfigError

EPILOG = "Example:\n\n  [bold]chappe pipeline report --work work --out report.html --hours 24[/bold]"


def add(app: typer.Typer) -> None:
    """Let the commands of the pipeline have it."""
    app.command(epilog=EPILOG)(report)


def parse_mark(text: str) -> tuple[int, str]:
    """Nanoseconds and a name, from `TIME=TEXT`; a time without a zone is UTC."""
    when, equals, name = text.partition("=")
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        equals = ""
    if not equals or not name:
        raise ConfigError(f"--mark {text!r}: must be TIME=TEXT, like 2026-11-16T14:30=works begin")
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1e9), name


def report(
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="Where jobs keep their tables.")] = Path("work"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML file to write.")] = Path("report.html"),
    hours: Annotated[float, typer.Option(min=0, help="Only the newest hours; 0: all there is.")] = 0.0,
    links: Annotated[int, typer.Option(min=1, max=100, help="So many links are drawn one by one, worst first.")] = 6,
    title: Annotated[str, typer.Option(help="Stands at the top.")] = "Mesh report",
    mark: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME=TEXT", help="A moment to show, as 2026-11-16T14:30; again for more."),
    ] = None,
) -> None:
    """Write one HTML file about the mesh: links, forecasts, alerts, promises, anomalies.

    It needs tables that jobs wrote, no Spark and no network: whoever opens it fetches nothing.
    """
    try:
        from chappe.pipeline.report.build import report as build
    except ModuleNotFoundError as error:
        say_error(f"{error.name} is missing: pip install 'chappe[spark]'")
        raise typer.Exit(exit_code(ConfigError())) from None
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with failures(), Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("report", total=None)

        def begun(section: str, number: int, of: int) -> None:
            progress.update(task, description=section or "writing", completed=number, total=of)

        lacking = build(work, out, title, hours, links, [parse_mark(each) for each in mark or ()], begun)
    for reason in lacking:
        say(f"not drawn: {reason}")
    typer.echo(out)
