"""The record of one measurement of one link: the one schema that reports, tables, XML and pipelines share."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from chappe.errors import ChappeError

VERSION = 1
MEASURED = "measured"
FOREIGN = "foreign:"  # followed by the system that measured
AHEAD_NS = 120_000_000_000  # clocks of nodes may be so far ahead of ours
NAME_CHARACTERS = 255
LINE_BYTES = 8192
BODY_BYTES = 1 << 20
METRICS = ("latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost")
SPACE = uuid.UUID("6f0b1d7e-7c5a-4f0e-9d0a-2f1f3c1f7a10")  # of links that are known by their uri only

_WHOLE = 1 << 63  # tables have integers of 64 bits
_NAMES = ("node", "peer", "realm", "user_group", "transport", "profile")
_FORBIDDEN = re.compile(r"[/+#]")  # they are levels of topics


class RecordError(ChappeError):
    """A record says what cannot be; names the field and the reason."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one end of a link measured (MR-077: by UUID and by URI; MR-106: for which user group).

    A metric is None where it was not measured. `stamp_ns` is UTC. `jitter_ms` is the smoothed one, `jitter` relative
    to the latency; bandwidth in bytes a second; an empty user group is open to everybody.
    """

    link: str
    node: str
    stamp_ns: int
    uri: str = ""
    peer: str = ""
    realm: str = ""
    user_group: str = ""
    transport: str = ""
    interval_ms: float | None = None
    window: int = 0
    outliers: int = 0
    latency_ms: float | None = None
    deviation_ms: float | None = None
    jitter_ms: float | None = None
    jitter: float | None = None
    loss: float | None = None
    bandwidth: float | None = None
    cost: float | None = None
    profile: str = ""
    published: bool = False
    origin: str = MEASURED
    version: int = VERSION

    @property
    def foreign(self) -> bool:
        return self.origin != MEASURED


class Refused(NamedTuple):
    """A line that was not taken, counted from 1, and why."""

    line: int
    reason: str


FIELDS: tuple[str, ...] = Record.__struct_fields__


def link_of(uri: str) -> str:
    """The UUID of a link that others know by its URI only: always the same."""
    return str(uuid.uuid5(SPACE, uri))


def problem(record: Record, now_ns: int) -> str:
    """What is wrong with a record, as `field: reason`; empty if nothing is."""
    return _identity(record) or _names(record) or _numbers(record) or _time(record, now_ns)


def check_record(record: Record, now_ns: int) -> Record:
    """The record itself; RecordError says what is wrong with it."""
    reason = problem(record, now_ns)
    if reason:
        raise RecordError(reason)
    return record


def encode(records: Iterable[Record]) -> bytes:
    """JSON lines, one record each."""
    return _ENCODER.encode_lines(records)


def decode(body: bytes, now_ns: int) -> tuple[list[Record], list[Refused]]:
    """The good records of JSON lines, and for each other line why it was not taken."""
    if len(body) > BODY_BYTES:
        return [], [Refused(1, f"has {len(body)} bytes, at most {BODY_BYTES} are read; send several reports")]
    taken: list[Record] = []
    refused: list[Refused] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            taken.append(_decoded(line, now_ns))
        except RecordError as error:
            refused.append(Refused(number, str(error)))
    return taken, refused


def parse(body: bytes) -> list[Record]:
    """All records of JSON lines as they stand, sensible or not; RecordError names the line that is none."""
    if len(body) > BODY_BYTES:
        raise RecordError(f"has {len(body)} bytes, at most {BODY_BYTES} are read; send several reports")
    found: list[Record] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_parsed(line))
        except RecordError as error:
            raise RecordError(f"line {number}: {error}") from None
    return found


def _decoded(line: bytes, now_ns: int) -> Record:
    return check_record(_parsed(line), now_ns)


def _parsed(line: bytes) -> Record:
    if len(line) > LINE_BYTES:
        raise RecordError(f"a line has {len(line)} bytes, at most {LINE_BYTES} are read")
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"is no record: {error}") from None
    if not all(-_WHOLE <= each < _WHOLE for each in (record.stamp_ns, record.window, record.outliers)):
        raise RecordError("is no record: a whole number has more than 64 bits")
    return record


def _identity(record: Record) -> str:
    if record.version != VERSION:
        return f"version: {record.version} is not known here, {VERSION} is"
    reason = _link_problem(record.link)
    if reason:
        return reason
    if record.origin != MEASURED and not (record.origin.startswith(FOREIGN) and len(record.origin) <= 64):
        return f"origin: {record.origin[:60]!r} is neither {MEASURED} nor {FOREIGN}NAME"
    if len(record.uri) > 1024 or record.uri != record.uri.strip() or not (record.uri + record.origin).isprintable():
        return "uri: has characters that cannot be shown, blanks around, or more than 1024"
    return ""


def _names(record: Record) -> str:
    if not record.node:
        return "node: is empty; say who measured"
    for field in _NAMES:
        text: str = getattr(record, field)
        if text and not _is_name(text):
            return f"{field}: {text[:60]!r} has / + # or control characters, blanks around, or over {NAME_CHARACTERS}"
    return ""


@lru_cache(65536)  # links and names come again with every record
def _link_problem(link: str) -> str:
    try:
        if str(uuid.UUID(link)) != link:
            return f"link: {link[:60]!r} is not written as a UUID: small letters and hyphens"
    except ValueError:
        return f"link: {link[:60]!r} is no UUID"
    return ""


@lru_cache(65536)
def _is_name(text: str) -> bool:
    return len(text) <= NAME_CHARACTERS and text == text.strip() and text.isprintable() and not _FORBIDDEN.search(text)


def _numbers(record: Record) -> str:
    for field in ("interval_ms", *METRICS):
        value: float | None = getattr(record, field)
        if value is None:
            continue
        if not math.isfinite(value):
            return f"{field}: {value} is no number"
        if value < 0:
            return f"{field}: {value:g} is negative"
    if record.loss is not None and record.loss > 1:
        return f"loss: {record.loss:g} is above 1; it is a share, not a percentage"
    if record.window < 0 or record.outliers < 0 or record.outliers > record.window:
        return f"outliers: {record.outliers} of a window of {record.window} cannot be"
    if max(record.window, record.outliers) > 1 << 31:
        return f"window: {record.window} is too large"
    return ""


def _time(record: Record, now_ns: int) -> str:
    if record.stamp_ns <= 0:
        return f"stamp_ns: {record.stamp_ns} is not after 1970"
    if record.stamp_ns > now_ns + AHEAD_NS:
        ahead_s = (record.stamp_ns - now_ns) / 1e9
        return f"stamp_ns: is {ahead_s:.0f} s in the future; set the clock of {record.node}"
    return ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)
