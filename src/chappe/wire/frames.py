"""Frames: preamble, kinds, and the cutting of a byte stream into them.

For handshakes, tests and `chappe dump`; the engine has its own compiled parser of the same contract
(`docs/reference/wire.md`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from chappe.errors import ProtocolError, VersionError
from chappe.wire.control import MAJOR, MINOR

MAGIC = b"CHAPPE"
PREAMBLE = MAGIC + bytes((MAJOR, MINOR))
PREAMBLE_SIZE = len(PREAMBLE)
HEADER_SIZE = 4
LENGTH_LIMIT = 0xFF_FFFF  # what the 24-bit length can say
DEFAULT_MAX_PAYLOAD = 1_048_576


class Kind(IntEnum):
    """First byte of a frame; the low four bits are the family."""

    STATUS = 0x01
    EVENT = 0x02
    TOPIC = 0x12
    ISSUER = 0x22
    ROUTE = 0x32
    PARCEL = 0x03
    PROBE = 0x04
    ECHO = 0x14
    TRAIN = 0x24
    TRAINED = 0x34
    CONTROL = 0x05
    LOSS = 0x15
    CREDIT = 0x25
    DENIAL = 0x35
    PARCEL_CREDIT = 0x45


_KINDS = {int(kind): kind for kind in Kind}


class Frame(NamedTuple):
    """One frame as it came: its kind and the bytes after the header."""

    kind: Kind
    payload: bytes

    def encode(self) -> bytes:
        """Header and payload."""
        return encode_frame(self.kind, self.payload)


def encode_frame(kind: Kind, payload: bytes) -> bytes:
    """Header and payload of one frame."""
    if len(payload) > LENGTH_LIMIT:
        raise ProtocolError(f"a {kind.name} frame holds at most {LENGTH_LIMIT} bytes, not {len(payload)}")
    return bytes((kind,)) + len(payload).to_bytes(3, "big") + payload


def check_preamble(opening: bytes) -> None:
    """ProtocolError if the other side is no Chappe peer; VersionError names both versions if its major one differs."""
    if len(opening) < PREAMBLE_SIZE or opening[: len(MAGIC)] != MAGIC:
        raise ProtocolError(f"not a Chappe peer: it opened with {opening[:PREAMBLE_SIZE].hex(' ') or 'nothing'}")
    major, minor = opening[len(MAGIC)], opening[len(MAGIC) + 1]
    if major != MAJOR:
        raise VersionError(
            f"the other side speaks version {major}.{minor}, this side {MAJOR}.{MINOR}: "
            f"both need the same major version, upgrade the older one"
        )


class FrameReader:
    """Cuts a byte stream into frames, whatever the sizes of its pieces; buffers no frame above its limit."""

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        self.max_payload = min(max_payload, LENGTH_LIMIT)
        self._rest = b""

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames completed by this piece; ProtocolError for an unknown kind or a length above the limit.

        Nothing after an error can be trusted: the connection ends, the reader is not used again.
        """
        buffer = self._rest + piece
        frames = []
        place = 0
        while place < len(buffer):
            kind = _KINDS.get(buffer[place])
            if kind is None:  # said before its length is believed
                raise ProtocolError(f"unknown kind of frame 0x{buffer[place]:02x}")
            if place + HEADER_SIZE > len(buffer):
                break
            length = int.from_bytes(buffer[place + 1 : place + HEADER_SIZE], "big")
            if length > self.max_payload:
                raise ProtocolError(f"a {kind.name} frame of {length} bytes is above the limit of {self.max_payload}")
            end = place + HEADER_SIZE + length
            if end > len(buffer):
                break
            frames.append(Frame(kind, buffer[place + HEADER_SIZE : end]))
            place = end
        self._rest = buffer[place:]
        return frames

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._rest)


class Cursor:
    """Walks through one payload; whatever would reach past its end is a ProtocolError that says where."""

    def __init__(self, payload: bytes, what: str) -> None:
        self._payload = payload
        self._what = what
        self._place = 0

    def take(self, size: int, field: str) -> bytes:
        """The next `size` bytes."""
        end = self._place + size
        if end > len(self._payload):
            raise ProtocolError(
                f"{self._what}: {field} needs {size} bytes at {self._place}, the payload has {len(self._payload)}"
            )
        piece = self._payload[self._place : end]
        self._place = end
        return piece

    def unsigned(self, size: int, field: str) -> int:
        """The next `size` bytes as a number."""
        return int.from_bytes(self.take(size, field), "big")

    def signed(self, size: int, field: str) -> int:
        """The next `size` bytes as a two's complement number."""
        return int.from_bytes(self.take(size, field), "big", signed=True)

    def text(self, size: int, field: str) -> str:
        """The next `size` bytes as UTF-8."""
        raw = self.take(size, field)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{self._what}: {field} is not UTF-8: {error.reason}") from None

    def rest(self) -> bytes:
        """Everything not taken yet."""
        piece = self._payload[self._place :]
        self._place = len(self._payload)
        return piece

    def __bool__(self) -> bool:
        return self._place < len(self._payload)

    def finish(self) -> None:
        """ProtocolError if something is left over."""
        if self:
            raise ProtocolError(f"{self._what}: {len(self._payload) - self._place} bytes too many")


def unsigned(value: int, size: int, field: str) -> bytes:
    """A number in `size` bytes; ProtocolError names the field that is out of range."""
    if not 0 <= value < 1 << 8 * size:
        raise ProtocolError(f"{field} {value} does not fit into {size} bytes")
    return value.to_bytes(size, "big")


def signed(value: int, size: int, field: str) -> bytes:
    """A two's complement number in `size` bytes; ProtocolError names the field that is out of range."""
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
        raise ProtocolError(f"{field} {value} does not fit into {size} bytes with sign")
    return value.to_bytes(size, "big", signed=True)
