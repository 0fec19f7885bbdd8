"""`chappe bench …`: one command for each bench of the registry, and those for all of them."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from bench import progress
from bench.ending import nothing_left
from bench.registry import BENCHES, Bench
from bench.report import Options, Report, wide_console
from chappe.errors import ChappeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Measure Chappe beside its peers. Times are the longest of a whole run and of one with --quick. "
    "Ctrl-C and SIGTERM end a bench with all it has started.",
)
KEYWORD = inspect.Parameter.KEYWORD_ONLY
Against = Annotated[
    str, typer.Option(metavar="COMMIT", help="Build that commit and compare this tree with it, in interleaved pairs.")
]


def longest(bench: Bench, own: Mapping[str, Any], quick: bool) -> str:
    """How long it may take; where a user says how long, that and a little."""
    minutes = own.get("minutes") or (bench.quick_minutes if quick else bench.minutes)
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def measure(bench: Bench, options: Options, own: Mapping[str, Any], against: str = "") -> int:
    """The exit code of a bench; what is wrong with its surroundings is one line and code 2."""
    within = longest(bench, own, options.quick)
    options.console.print(f"takes up to {within}; Ctrl-C ends it and all it has started", style="dim")
    failed = Console(stderr=True)
    try:
        with nothing_left(), progress.whole(options.console, f"bench {bench.name}", within):
            report = _report(bench, options, bench.own(**own), against)
        return report.finish(options)
    except KeyboardInterrupt:
        failed.print("chappe bench: ended before it was done; nothing is left running")
        return 130
    except ChappeError as error:
        failed.print(f"[red]chappe bench:[/] {error}", highlight=False)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("chappe", "bench")):
            raise
        failed.print(f"[red]chappe bench:[/] {error.name} is missing: pip install 'chappe\\[bench]'")
    return 2


def _report(bench: Bench, options: Options, own: Any, against: str) -> Report:
    module = importlib.import_module(bench.module)
    if against:
        from bench.against import run

        return run(options, bench.name, against, module.compared(options, own))
    report: Report = module.run(options, own)
    return report


def command(bench: Bench) -> Callable[..., None]:
    """The function whose signature is that of the command: the bench's own options, then those of all."""

    def call(**given: Any) -> None:
        against = given.pop("against", "")
        own = {each.name: given.pop(each.name) for each in fields(bench.own)}
        raise typer.Exit(measure(bench, Options(**given), own, against))

    against = [inspect.Parameter("against", KEYWORD, default="", annotation=Against)] if bench.against else []
    call.__doc__ = "\n\n".join((bench.line, bench.text)).strip()
    return _signed(call, [*_parameters(bench.own), *against, *_parameters(Options)])


def _signed(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """What typer reads the options of a command from."""
    setattr(function, "__signature__", inspect.Signature(parameters))  # noqa: B010  mypy knows no such attribute
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


def _parameters(declared: type[Any]) -> list[inspect.Parameter]:
    """Those fields of a dataclass that are options of a command."""
    hints = get_type_hints(declared, include_extras=True)
    found = []
    for each in fields(declared):
        if hasattr(hints[each.name], "__metadata__"):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            found.append(inspect.Parameter(each.name, KEYWORD, default=default, annotation=hints[each.name]))
    return found


def _times(bench: Bench) -> str:
    return f"{bench.minutes:g} min, quick {bench.quick_minutes:g}"


for _bench in BENCHES:
    _examples = "\n\n".join(("Examples:", *(f"  [bold]chappe bench {each}[/bold]" for each in _bench.examples)))
    app.command(
        _bench.name,
        short_help=f"[dim]{_times(_bench):<18}[/dim] {_bench.line}",
        epilog=f"Takes up to {_bench.minutes:g} minutes, with --quick {_bench.quick_minutes:g}.\n\n"
        + (_examples if _bench.examples else ""),
    )(command(_bench))


@app.command("list")
def listed() -> None:
    """Every bench with the longest it may take, and what it measures."""
    table = Table("bench", "minutes", "--quick", "--against", "measures")
    for bench in BENCHES:
        table.add_row(
            bench.name, f"{bench.minutes:g}", f"{bench.quick_minutes:g}", "yes" if bench.against else "", bench.line
        )
    console = wide_console()
    console.print(table)
    runs = [bench for bench in BENCHES for _ in bench.runs]
    whole, quick = sum(each.minutes for each in runs) / 60, sum(each.quick_minutes for each in runs) / 60
    console.print(f"`chappe bench all`: up to {whole:.1f} hours, with --quick {quick:.1f}", highlight=False)


def every(**given: Any) -> None:
    """Every bench, one after the other; the exit code is the worst of all."""
    shared = Options(**given)
    folder = shared.json or shared.charts
    runs = [(name, bench, own) for bench in BENCHES for name, own in bench.runs.items()]
    worst, began = 0, time.monotonic()
    for number, (name, bench, own) in enumerate(runs, 1):
        gone = time.strftime("%H:%M:%S", time.gmtime(time.monotonic() - began))
        shared.console.rule(f"chappe bench {name}: {number} of {len(runs)}, after {gone}")
        code = measure(bench, replace(shared, json=folder / f"{name}.json"), own)
        if code == 130:
            raise typer.Exit(code)
        worst = max(worst, code)
    raise typer.Exit(worst)


app.command("all")(_signed(every, _parameters(Options)))
