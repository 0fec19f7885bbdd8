"""Making the report: section by section, each from its own tables, one that cannot be drawn saying why."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chappe.disk import sync
from chappe.errors import ConfigError
from chappe.pipeline.report import alerted, links, network, plane, quality
from chappe.pipeline.report.page import Section, page, sentence
from chappe.pipeline.report.stored import Lacking, Scope, Stored
from chappe.pipeline.report.ticks import moment
from chappe.pipeline.tables import Tables

HOUR_NS = 3_600_000_000_000
TIMES = {"link_statistics": "start_ns", "alerts": "stamp_ns", "compliance": "hour_ns", "measurements": "created_ns"}
Drawn = Callable[[Stored, Scope], str]


@dataclass(frozen=True)
class Part:
    """A section: what it is called and who draws it, one after the other."""

    key: str
    title: str
    drawn: tuple[Drawn, ...]


PARTS = (
    Part("alerts", "Alerts", (alerted.alerts,)),
    Part("history", "Links: history, baseline and forecast", (links.history,)),
    Part("latency", "Latency percentiles", (links.percentiles, quality.percentiles)),
    Part("week", "Hours of the week", (links.week,)),
    Part("network", "The network by cost", (network.map_by_cost,)),
    Part("anomalies", "Anomalies in the plane", (plane.anomalies, plane.forgeries)),
    Part("sla", "Promises and how they were kept", (quality.sla, quality.lossy)),
)


def report(
    work: Path,
    out: Path,
    title: str = "Mesh report",
    hours: float = 0.0,
    links: int = 6,
    marks: Sequence[tuple[int, str]] = (),
    begun: Callable[[str, int, int], None] = lambda *_: None,
) -> list[str]:
    """Write the report of the tables below `work`; sentences of what could not be drawn.

    `hours`: only the newest, 0 for all; `marks`: moments to show, with a name; `begun` hears of each section, with its
    number and how many there are.
    """
    tables = Tables(work)
    if not tables.names():
        raise ConfigError(
            f"{work}: there are no tables; run jobs first: chappe pipeline run ingest links --work {work}"
        )
    stored = Stored(tables)
    scope = replace(_scope(stored, hours, links), marks=tuple(marks))
    lacking: list[str] = []
    sections = []
    for number, part in enumerate(PARTS):
        begun(part.title, number, len(PARTS))
        sections.append(Section(part.key, part.title, _content(part, stored, scope, lacking)))
    begun("", len(PARTS), len(PARTS))
    subtitle = f"{moment(scope.from_ns)} to {moment(scope.to_ns)}, written {moment(time.time_ns())}"
    _put(out, page(title, subtitle, _cards(stored), sections))
    return lacking


def _content(part: Part, stored: Stored, scope: Scope, lacking: list[str]) -> str:
    pieces = []
    for drawn in part.drawn:
        try:
            pieces.append(drawn(stored, scope))
        except Lacking as reason:
            lacking.append(str(reason))
            pieces.append(sentence(str(reason)))
    return "".join(dict.fromkeys(pieces))  # one reason for two plots is said once


def _scope(stored: Stored, hours: float, links: int) -> Scope:
    spans = [span for name, column in TIMES.items() if (span := stored.span_ns(name, column)) is not None]
    last = max((span[1] for span in spans), default=time.time_ns())
    first = min((span[0] for span in spans), default=last - HOUR_NS)
    return Scope(max(first, last - round(hours * HOUR_NS)) if hours else first, last, links)


def _cards(stored: Stored) -> list[tuple[str, str]]:
    counted: Mapping[str, str] = {
        "measurements": "measurements", "status": "values", "events": "events", "alerts": "changes of alerts",
        "quarantine": "rows in quarantine",
    }  # fmt: skip
    cards = [(text, f"{stored.count(name):,}") for name, text in counted.items() if stored.exists(name)]
    repeats = stored.total("repeats", "repeats")
    return [*cards, ("repeats left out", f"{repeats:,}")] if repeats else cards


def _put(out: Path, text: str) -> None:
    """The whole file or none of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    hidden = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    hidden.write_text(text, encoding="utf-8")
    sync(hidden)
    hidden.rename(out)
