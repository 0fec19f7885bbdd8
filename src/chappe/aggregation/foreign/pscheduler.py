"""Results of pScheduler (perfSONAR) as records: latency, rtt, throughput; and records in its form (MR-078)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from chappe.aggregation.foreign.mapping import ForeignLink, between
from chappe.measure.record import FOREIGN, Record, RecordError, Refused

ORIGIN = FOREIGN + "pscheduler"
MAX_BYTES = 16 << 20
_DURATION = re.compile(r"P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)S)?")


def read(document: bytes, links: Sequence[ForeignLink]) -> tuple[list[Record], list[Refused]]:
    """The records of one run, of a list of runs, or of JSON lines of runs; for each other one the reason.

    A run has `test` (type and spec with source and dest), `result`, and a time (`start-time`, or `schedule.start`).
    """
    if len(document) > MAX_BYTES:
        return [], [Refused(1, f"has {len(document)} bytes, at most {MAX_BYTES} are read")]
    taken: list[Record] = []
    refused: list[Refused] = []
    for number, run in _runs(document):
        try:
            if isinstance(run, RecordError):
                raise run
            taken.append(_record(run, links))
        except RecordError as error:
            refused.append(Refused(number, str(error)))
    return taken, refused


def write(records: Iterable[Record]) -> bytes:
    """Records as runs of `latency` tests, one a line, for tools that read pScheduler."""
    lines = []
    for record in records:
        if record.latency_ms is None:
            continue
        sent = max(record.window, 1)
        lost = round((record.loss or 0.0) * sent)
        moment = datetime.fromtimestamp(record.stamp_ns / 1e9, UTC)
        lines.append(
            {
                "start-time": moment.isoformat().replace("+00:00", "Z"),
                "test": {"type": "latency", "spec": {"schema": 1, "source": record.node, "dest": record.peer}},
                "result": {
                    "schema": 1, "succeeded": True, "packets-sent": sent, "packets-lost": lost,
                    "packets-received": sent - lost, "packets-duplicated": 0, "packets-reordered": 0,
                    "histogram-latency": {f"{record.latency_ms:.2f}": sent - lost},
                },
                "reference": {"link": record.link, "uri": record.uri},
            }
        )  # fmt: skip
    return msgspec.json.Encoder().encode_lines(lines)


def _runs(document: bytes) -> Iterable[tuple[int, Any]]:
    try:
        whole = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        lines = [line for line in document.split(b"\n") if line.strip()]
        if len(lines) < 2:
            yield 1, RecordError(f"is no JSON: {error}")
            return
        for number, line in enumerate(lines, 1):
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
                yield number, RecordError(f"is no JSON: {wrong}")
        return
    yield from enumerate(whole if isinstance(whole, list) else [whole], 1)


def _record(run: Any, links: Sequence[ForeignLink]) -> Record:
    test, result = _object(run, "test"), _object(run, "result")
    spec = _object(test, "spec")
    kind = test.get("type")
    source, target = str(spec.get("source") or ""), str(spec.get("dest") or "")
    link = between(links, source, target)
    if link is None:
        raise RecordError(f"test: no link is configured for {source or '?'} to {target or '?'}")
    if result.get("succeeded") is not True:
        raise RecordError(f"result: the {kind} test did not succeed: {str(result.get('error') or '?')[:200]}")
    reader = {"latency": _latency, "latencybg": _latency, "rtt": _rtt, "throughput": _throughput}.get(str(kind))
    if reader is None:
        raise RecordError(f"test: type {str(kind)[:40]!r} is none of latency, latencybg, rtt, throughput")
    return Record(
        link=link.uuid(), uri=link.uri, node=link.node, peer=link.peer, transport=link.transport,
        user_group=link.user_group, origin=ORIGIN, stamp_ns=_stamp(run), **reader(result, spec),
    )  # fmt: skip


def _latency(result: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """One-way latencies as a histogram in units of the bucket width, which is a millisecond unless the test says so."""
    unit_ms = _number(spec.get("bucket-width", 0.001), "bucket-width") * 1000
    found: dict[str, Any] = {"loss": _loss(result, "packets-sent", "packets-lost")}
    histogram = result.get("histogram-latency")
    if not isinstance(histogram, dict):
        raise RecordError("result: histogram-latency is missing")
    values = [(_number(key, "histogram-latency") * unit_ms, _count(number)) for key, number in histogram.items()]
    total = sum(number for _, number in values)
    if total:
        mean = sum(value * number for value, number in values) / total
        variance = sum((value - mean) ** 2 * number for value, number in values) / total
        found |= {"latency_ms": mean, "deviation_ms": variance**0.5, "window": total}
    return found


def _rtt(result: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Half of the round trip, as everywhere here."""
    found: dict[str, Any] = {"loss": _loss(result, "sent", "lost")}
    if found["loss"] is None and "loss" in result:
        found["loss"] = _number(result["loss"], "loss")
    if result.get("mean") is not None:
        found["latency_ms"] = _seconds(result["mean"], "mean") * 1000 / 2
    if result.get("stddev") is not None:
        found["deviation_ms"] = _seconds(result["stddev"], "stddev") * 1000 / 2
    if result.get("sent"):
        found["window"] = _count(result["sent"])
    return found


def _throughput(result: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    summary = _object(_object(result, "summary"), "summary")
    bits = summary.get("receiver-throughput-bits", summary.get("throughput-bits"))
    if bits is None:
        raise RecordError("result: summary.summary.throughput-bits is missing")
    found: dict[str, Any] = {"bandwidth": _number(bits, "throughput-bits") / 8}
    if "lost" in summary:
        found["loss"] = _loss(summary, "sent", "lost")
    return found


def _stamp(run: dict[str, Any]) -> int:
    schedule = run.get("schedule")
    text = run.get("start-time") or (schedule.get("start") if isinstance(schedule, dict) else None)
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        raise RecordError(f"start-time: {str(text)[:40]!r} is no time like 2026-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        raise RecordError(f"start-time: {str(text)[:40]!r} says no time zone")
    return int(moment.timestamp() * 1e6) * 1000


def _object(of: Any, name: str) -> dict[str, Any]:
    found = of.get(name) if isinstance(of, dict) else None
    if not isinstance(found, dict):
        raise RecordError(f"{name}: is missing or no object")
    return found


def _loss(result: dict[str, Any], sent: str, lost: str) -> float | None:
    if not result.get(sent) or result.get(lost) is None:
        return None
    return _number(result[lost], lost) / _number(result[sent], sent)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RecordError(f"{name}: {str(value)[:40]!r} is no number") from None
    if not 0 <= number < float("inf"):
        raise RecordError(f"{name}: {number:g} is negative or no number")
    return number


def _count(value: Any) -> int:
    return int(min(_number(value, "count"), 1 << 31))


def _seconds(value: Any, name: str) -> float:
    """An ISO 8601 duration like PT0.0123S."""
    found = _DURATION.fullmatch(str(value))
    if found is None:
        raise RecordError(f"{name}: {str(value)[:40]!r} is no duration like PT0.012S")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds
