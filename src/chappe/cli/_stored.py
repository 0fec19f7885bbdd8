"""The store of measurements that a command reads: where it is, and as which group of users."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chappe.cli._failures import exit_code, say_error
from chappe.errors import ChappeError, ConfigError

if TYPE_CHECKING:
    from chappe.aggregation.access import View
    from chappe.aggregation.config import Config
    from chappe.store.records import RecordStore

PANEL = "The store"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the measurements are, and who asks."""

    store: Annotated[
        str,
        typer.Option("--store", envvar="CHAPPE_STORE", help="SQLite file or postgresql:// url.", rich_help_panel=PANEL),
    ] = ""
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="TOML of the aggregator: its store and views.", rich_help_panel=PANEL),
    ] = None
    group: Annotated[
        str, typer.Option("--group", help="As a group of users sees it, by the views of --file.", rich_help_panel=PANEL)
    ] = ""

    def config(self) -> Config | None:
        from chappe.aggregation.config import load

        return load(self.file) if self.file is not None else None

    def view(self) -> View:
        """What the group sees; everything if none was named."""
        from chappe.aggregation.access import EVERYTHING, Access

        if not self.group:
            return EVERYTHING
        config = self.config()
        if config is None:
            raise ConfigError("--group needs --file, whose [[view]] tables say what the group sees")
        return Access(config.view).view(self.group)

    @contextmanager
    def open(self, *, make: bool = False) -> Iterator[RecordStore]:
        """The store; ConfigError if there is none and it is not to be made."""
        from chappe.store.opening import open_records

        config = self.config()
        place = self.store or (config.aggregates.store if config else "")
        if not place:
            raise ConfigError("no store: give --store or --file, or set CHAPPE_STORE")
        if not make and "://" not in place and not Path(place).exists():
            raise ConfigError(f"there is no store {place}; start the aggregator first, or correct --store")
        store = open_records(place)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def failing() -> Iterator[None]:
    """Expected errors as one line and an exit code."""
    try:
        yield
    except (ChappeError, OSError) as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None


def duration_ns(text: str) -> int:
    """`90s`, `15m`, `2h`, `7d`, `1w`, or a word like `hour`; ConfigError for anything else."""
    named = {"hour": "1h", "day": "1d", "week": "1w"}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", named.get(text, text))
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"{text!r} is no duration; write 90s, 15m, 2h, 7d, 1w, hour, day or week")
    return int(float(found[1]) * UNITS[found[2]] * 1_000_000_000)


def since_ns(last: str, clock: Callable[[], int] = time.time_ns) -> int:
    """When a time that ends now began; 0 for an empty text."""
    return clock() - duration_ns(last) if last else 0


def link_named(store: RecordStore, text: str, view: View) -> str:
    """The UUID of a link that is named by it, by its URI or by `node-peer`; ConfigError if there is not exactly one."""
    from chappe.aggregation.averages import current

    try:
        return str(uuid.UUID(text))
    except ValueError:
        pass
    seen = current(store, view=view)
    found = {each.link for each in seen if text in (each.uri, f"{each.node}-{each.peer}")}
    if not found:
        raise ConfigError(f"no link {text!r} is stored; `chappe aggregate links` lists them")
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} links are called {text!r}; name one by its UUID: {', '.join(sorted(found)[:3])}"
        )
    return found.pop()


def moment(stamp_ns: int) -> str:
    """A stamp for people: UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stamp_ns / 1e9))


def display_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: stamps as times."""
    return {
        key.removesuffix("_ns"): moment(value) if key.endswith("_ns") and isinstance(value, int) else value
        for key, value in row.items()
    }
