"""Frames for people: one line or one JSON object a frame, from any source of bytes (`chappe dump`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from chappe.errors import ProtocolError
from chappe.wire import control
from chappe.wire.addresses import KIND, redacted
from chappe.wire.events import TopicName
from chappe.wire.frames import (
    DEFAULT_MAX_PAYLOAD,
    HEADER_SIZE,
    MAGIC,
    PREAMBLE_SIZE,
    Frame,
    FrameReader,
    check_preamble,
)
from chappe.wire.parcels import CellParcel
from chappe.wire.payloads import Parcel, Payload, decode_payload
from chappe.wire.status import Record

BODY_SHOWN = 64
SECRETS = frozenset(("token", "key", "session"))  # fields of control messages that are never redacted


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One frame (or what ended the decoding) at its place in the stream."""

    offset: int
    kind: str
    size: int
    fields: dict[str, Any]

    def text(self) -> str:
        """One line for a person."""
        shown = "  ".join(f"{name}={_short(value)}" for name, value in self.fields.items())
        return f"{self.offset:>10}  {self.kind:<8} {self.size:>8}  {shown}"

    def json(self) -> str:
        """One JSON object; bytes are hexadecimal."""
        return msgspec.json.encode(
            {"offset": self.offset, "kind": self.kind, "size": self.size, **self.fields}
        ).decode()


def dump(pieces: Iterable[bytes], max_payload: int = DEFAULT_MAX_PAYLOAD) -> Iterator[Line]:
    """Every frame in the pieces, in order; a last line of kind `error` if the bytes break the contract."""
    dumper = Dumper(max_payload)
    for piece in pieces:
        yield from dumper.feed(piece)
    yield from dumper.finish()


class Dumper:
    """Decodes one direction of a byte stream, with or without its preamble, as the bytes come."""

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        self._reader = FrameReader(max_payload)
        self._opening: bytes | None = b""
        self._offset = 0
        self.failed = False

    def feed(self, piece: bytes) -> Iterator[Line]:
        """The lines of the frames that this piece completes; nothing more after an error."""
        if self.failed:
            return
        try:
            if self._opening is not None:
                self._opening += piece
                if MAGIC.startswith(self._opening[: len(MAGIC)]) and len(self._opening) < PREAMBLE_SIZE:
                    return
                piece, self._opening = self._opening, None
                if piece.startswith(MAGIC):
                    yield Line(0, "preamble", PREAMBLE_SIZE, {"version": f"{piece[6]}.{piece[7]}"})
                    self._offset = PREAMBLE_SIZE
                    check_preamble(piece[:PREAMBLE_SIZE])
                    piece = piece[PREAMBLE_SIZE:]
            for frame in self._reader.feed(piece):
                yield self._line(frame)
        except ProtocolError as error:
            self.failed = True
            yield Line(self._offset, "error", 0, {"reason": str(error)})

    def finish(self) -> Iterator[Line]:
        """A line for bytes that the end of the stream cut off."""
        pending = self._reader.pending + len(self._opening or b"")
        if pending and not self.failed:
            yield Line(self._offset, "error", pending, {"reason": "the stream ends inside a frame"})

    def _line(self, frame: Frame) -> Line:
        try:
            fields = describe(decode_payload(frame))
        except ProtocolError as error:
            fields = {"error": str(error), "payload": frame.payload[:BODY_SHOWN].hex()}
        line = Line(self._offset, frame.kind.name, len(frame.payload), fields)
        self._offset += HEADER_SIZE + len(frame.payload)
        return line


def describe(payload: Payload) -> dict[str, Any]:
    """The fields of a payload, without those that say nothing; bytes as hexadecimal, secrets hidden."""
    if isinstance(payload, control.Message):
        fields: dict[str, Any] = {"k": control.kind_name(type(payload))}
        for name, value in msgspec.structs.asdict(payload).items():
            fields[name] = "(hidden)" if name in SECRETS and value is not None else _plain(value)
        if isinstance(payload, control.InboxOpened | control.CloseInbox):
            fields["address"] = redacted(payload.address)
        return fields
    shown: Any = _cell_parcel(payload) if isinstance(payload, Parcel) else payload
    values = {entry.name: getattr(shown, entry.name) for entry in dataclasses.fields(shown)}
    return {name: _plain(value) for name, value in values.items() if not _says_nothing(value)}


def _cell_parcel(parcel: Parcel) -> CellParcel | Parcel:
    """What cells wrote, or the parcel as it is where that cannot be read."""
    try:
        return CellParcel.decode(parcel.content)
    except ProtocolError:
        return parcel


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, bytes | tuple | dict) and not value)


def _plain(value: Any) -> Any:
    match value:
        case Record():
            # Which of the readings is meant is known to whoever registered the variable.
            return {
                "created": value.created,
                "variable": value.variable,
                "int": value.value_as("int"),
                "float": _number(value.value_as("float")),
                **({"blocks": value.blocks.hex()} if value.blocks else {}),
            }
        case TopicName():
            name = redacted(value.name) if value.kind == KIND and isinstance(value.name, str) else value.name
            return {"name": name, "kind": value.kind, "group": value.group}
        case bytes():
            return value.hex()
        case float():
            return _number(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case msgspec.Struct():
            return _plain(msgspec.structs.asdict(value))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
        case _:
            return value


def _number(value: Any) -> Any:
    # JSON has no NaN and no infinity: they are shown as text.
    return value if value == value and abs(value) != float("inf") else str(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 2 * BODY_SHOWN else f"{text[: 2 * BODY_SHOWN]}… ({len(text)} characters)"
