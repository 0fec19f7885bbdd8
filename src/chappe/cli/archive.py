"""`chappe archive`: run an archive, and look after what it has written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import exit_code, say, say_error
from chappe.cli._stored import duration_ns, failing, moment
from chappe.cli._tables import print_json, print_table
from chappe.errors import ChappeError

if TYPE_CHECKING:
    from chappe.archive.segments import Segments

app = typer.Typer(help="Run an archive of a mesh, and look after what it has written.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")]
ToFile = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the archive.", show_default=False)]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Of the segments: a path or a URI.", show_default=False)]
Dataset = Annotated[str, typer.Option("--dataset", help="Only this one; without: all.")]
Name = Annotated[str, typer.Option("--name", help="Only of the archive of this name; without: of all.")]


@app.command(epilog="Example:\n\n  [bold]chappe archive run plant.toml[/bold]")
def run(
    file: ToFile, check_only: Annotated[bool, typer.Option("--check", help="Only say what is wrong with FILE.")] = False
) -> None:
    """Run an archive until Ctrl-C or SIGTERM; a line `serving` says that it is up."""
    from chappe.archive.config import load
    from chappe.archive.process import run as run_process

    try:
        config = load(file)
        if check_only:
            typer.echo(f"{file}: ok")
            return
        code = run_process(config)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


@app.command(epilog="Examples:\n\n  [bold]chappe archive ls history[/bold]\n\n"
             "  [bold]chappe archive ls s3://bucket/history --json[/bold]")  # fmt: skip
def ls(folder: Folder, as_json: Json = False) -> None:
    """What is in an archive: datasets, the archives that wrote them, rows, offsets, times and bytes."""
    from chappe.archive.checks import contents

    with failing():
        found = [each._asdict() for each in contents(_segments(folder))]
    if as_json:
        print_json(found)
        return
    for row in found:
        row["from"], row["to"] = moment(row.pop("from_ns")), moment(row.pop("to_ns"))
    print_table(found, everything=True)


@app.command(epilog="Example:\n\n  [bold]chappe archive check history --log log[/bold]")
def check(
    folder: Folder,
    log: Annotated[Path | None, typer.Option("--log", help="Also the log of the archive --name.")] = None,
    name: Annotated[str, typer.Option("--name", help="Of the archive whose log it is; without: as the log says.")] = "",
    as_json: Json = False,
) -> None:
    """Read everything and name each file that is damaged and the rows that it costs; exit code 1 if there is one."""
    from chappe.archive.checks import problems
    from chappe.archive.log import owner

    with failing():
        wrong = 0
        source = name or (owner(log) if log is not None else "") or "archive"
        for problem in problems(_segments(folder, source), log):
            print_json([problem._asdict()]) if as_json else typer.echo(str(problem))
            wrong += problem.kind != "torn"
    if wrong:
        raise typer.Exit(1)
    say(f"{folder}: ok")


@app.command(epilog="Example:\n\n  [bold]chappe archive compact history --dataset status[/bold]")
def compact(
    folder: Folder,
    dataset: Dataset = "",
    name: Name = "",
    rows: Annotated[int, typer.Option(min=2, help="Of a joined segment, at most.")] = 1 << 22,
) -> None:
    """Join small segments of hours that are over. An archive does so itself unless `compaction = false`."""
    import time

    from chappe.archive.sink import compact as joined

    with failing():
        fewer = 0
        for chosen, source in _select(folder, dataset, name):
            fewer += joined(_segments(folder, source), chosen, time.time_ns(), rows)
    say(f"{fewer} segments fewer")


@app.command(epilog="Example:\n\n  [bold]chappe archive expire history --older 30d --dataset status[/bold]")
def expire(
    folder: Folder,
    older: Annotated[str, typer.Option("--older", metavar="DURATION", help="Than this: 90s, 15m, 2h, 30d, 4w.")],
    dataset: Dataset = "",
    name: Name = "",
) -> None:
    """Delete segments whose rows are all older. An archive does so itself by `retention_days`."""
    import time

    with failing():
        before_ns = time.time_ns() - duration_ns(older)
        gone = 0
        for chosen, source in _select(folder, dataset, name):
            gone += _segments(folder, source).expire(chosen, before_ns)
    say(f"{gone} segments deleted")


def _segments(folder: str, name: str = "archive") -> Segments:
    from chappe.archive.segments import Segments

    return Segments(folder, name)


def _select(folder: str, dataset: str, name: str) -> list[tuple[str, str]]:
    """Datasets and the archives that wrote them."""
    from chappe.archive.checks import contents
    from chappe.archive.schema import schema_of

    if dataset:
        schema_of(dataset)
    found = ((each.dataset, each.source) for each in contents(_segments(folder)))
    return [each for each in found if dataset in ("", each[0]) and name in ("", each[1])]
