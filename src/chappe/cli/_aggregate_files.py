"""`chappe aggregate export`, `import` and `xpath`: records as files, in our form and in those of others."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import FAILED, say
from chappe.cli._stored import Stored, failing, since_ns
from chappe.cli._target import targeted
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from chappe.measure.record import Record, Refused
    from chappe.store.records import RecordStore

Last = Annotated[str, typer.Option("--last", metavar="DURATION", help="Everything of this time; without: the newest.")]
BATCH = 5000


class Form(StrEnum):
    """In which form records leave."""

    xml = "xml"
    html = "html"
    jsonl = "jsonl"
    prometheus = "prometheus"
    pscheduler = "pscheduler"


class Readable(StrEnum):
    """In which form records come."""

    xml = "xml"
    jsonl = "jsonl"
    prometheus = "prometheus"
    pscheduler = "pscheduler"


def add(app: typer.Typer) -> None:
    """Give the application these commands."""
    app.command(
        "export",
        epilog="Examples:\n\n  [bold]chappe aggregate export --last 1d --store east.db > day.xml[/bold]\n\n"
        "  [bold]chappe aggregate export --form html --out links.html --store east.db[/bold]",
    )(export)
    app.command(
        "import",
        epilog="Examples:\n\n  [bold]chappe aggregate import day.xml --store west.db[/bold]\n\n"
        "  [bold]chappe aggregate import runs.json --form pscheduler --file east.toml[/bold]",
    )(import_)
    app.command(
        "xpath",
        epilog="Examples:\n\n"
        "  [bold]chappe aggregate xpath '//performancedata\\[avg_latency > 80]' --store east.db[/bold]\n\n"
        "  [bold]chappe aggregate xpath 'sum(//avg_latency) div count(//avg_latency)' --xml day.xml[/bold]",
    )(xpath)


@targeted
def export(
    stored: Stored,
    form: Annotated[Form, typer.Option(help="In which form.")] = Form.xml,
    last: Last = "",
    out: Annotated[Path | None, typer.Option(help="File to write; without: stdout.")] = None,
    stylesheet: Annotated[Path | None, typer.Option(help="An own XSLT for html.")] = None,
) -> None:
    """Write measurements as XML, as a page, or in the form of another system."""
    with failing():
        with stored.open() as store:
            text = encode_records(_records(store, stored, last), form, stylesheet)
        if out is None:
            sys.stdout.buffer.write(text)
        else:
            out.write_bytes(text)


@targeted
def import_(
    stored: Stored,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What to read.", show_default=False)],
    form: Annotated[Readable, typer.Option(help="In which form it is.")] = Readable.xml,
) -> None:
    """Read measurements into the store. Good ones are kept; for others the line and the reason are said."""
    import msgspec

    with failing():
        taken, refused = _read(stored, source.read_bytes(), form)
        rows = [msgspec.structs.astuple(each) for each in taken]
        with stored.open(make=True) as store:
            new = sum(store.write(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH))
    for line, reason in refused[:20]:
        say(f"{source}: line {line}: {reason}")
    typer.echo(f"{new} new, {len(taken) - new} known already, {len(refused)} refused")
    if refused:
        raise typer.Exit(FAILED)


@targeted
def xpath(
    stored: Stored,
    expression: Annotated[
        str, typer.Argument(metavar="XPATH", help="Over P_Metrics/performancedata.", show_default=False)
    ],
    last: Last = "",
    xml_file: Annotated[Path | None, typer.Option("--xml", help="Of this file instead of the store.")] = None,
) -> None:
    """Ask the XML form of what is stored; records are printed as XML, anything else as text."""
    from chappe.aggregation import xml
    from chappe.aggregation._xml_rows import text_of
    from chappe.measure.record import Record

    with failing():
        if xml_file is not None:
            document = xml_file.read_bytes()
        else:
            with stored.open() as store:
                document = xml.export(_records(store, stored, last))
        for found in xml.query(xml.parse(document), expression):
            typer.echo(text_of(found).rstrip() if isinstance(found, Record) else str(found))


def encode_records(records: list[Record], form: Form, stylesheet: Path | None = None) -> bytes:
    """Records in a form."""
    from chappe.aggregation import xml
    from chappe.aggregation.foreign import prometheus, pscheduler
    from chappe.measure import record

    match form:
        case Form.xml:
            return xml.export(records)
        case Form.html:
            return xml.html(xml.parse(xml.export(records)), stylesheet)
        case Form.jsonl:
            return record.encode(records)
        case Form.prometheus:
            return prometheus.write(records)
    return pscheduler.write(records)


def _records(store: RecordStore, stored: Stored, last: str) -> list[Record]:
    from chappe.aggregation import averages

    view = stored.view()
    return averages.records(store, since_ns(last), view=view) if last else averages.current(store, view=view)


def _read(stored: Stored, text: bytes, form: Readable) -> tuple[list[Record], list[Refused]]:
    from chappe.aggregation import xml
    from chappe.aggregation.foreign import prometheus, pscheduler
    from chappe.measure import record

    now_ns = time.time_ns()
    if form is Readable.xml:
        return xml.read(text, now_ns)
    if form is Readable.jsonl:
        return _lines(text, now_ns)
    config = stored.config()
    if config is None:
        raise ConfigError(f"{form}: needs --file, whose [[foreign.link]] tables say which links are meant")
    tables = [each for each in config.foreign if each.kind == form.value]
    links = [link for each in tables for link in each.link]
    if form is Readable.pscheduler:
        found, refused = pscheduler.read(text, links)
    else:
        metrics = [metric for each in tables for metric in each.metric]
        found, refused = prometheus.read(text.decode(errors="replace"), links, metrics, now_ns)
    good = []
    for each in found:
        reason = record.problem(each, now_ns)
        if reason:
            refused.append(record.Refused(0, reason))
        else:
            good.append(each)
    return good, refused


def _lines(text: bytes, now_ns: int) -> tuple[list[Record], list[Refused]]:
    """JSON lines of any length, a part at a time."""
    from chappe.measure import record

    taken: list[Record] = []
    refused: list[Refused] = []
    lines = text.split(b"\n")
    for start in range(0, len(lines), 100):
        good, bad = record.decode(b"\n".join(lines[start : start + 100]), now_ns)
        taken += good
        refused += [record.Refused(start + line, reason) for line, reason in bad]
    return taken, refused
