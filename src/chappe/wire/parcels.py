"""Version 2 of the parcel header: what cells write behind the version byte of a PARCEL frame (BF)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from chappe.errors import ProtocolError
from chappe.wire.constants import CELL_ID_BYTES as CELL_ID_BYTES
from chappe.wire.constants import MAX_HOPS as MAX_HOPS
from chappe.wire.constants import MAX_NAME_BYTES as MAX_NAME_BYTES
from chappe.wire.frames import Cursor, unsigned

ACK_BYTES = 1400  # most of a PARCEL payload that acknowledges
MAX_RANGES = 32
MAX_OUTSTANDING = 1 << 16  # parcels of a flow from the first that is not acknowledged to the last
FIXED_ACK_BYTES = 27  # without ranges and text
MAX_TEXT_BYTES = 512
ACK_VERSION = 1


class ParcelFlag(IntFlag):
    FIRST = 1  # of its message
    LAST = 2
    ACK = 4  # the body acknowledges parcels of the flow in the other direction
    MULTICAST = 8  # the destination is a prefix: every cell whose name begins with it
    RETURNED = 16  # a hop could not be reached: it goes back to the cell that chose its hops
    ABSENT = 32  # with RETURNED: all hops were reached, and the last one knows no way to the destination


class AckFlag(IntFlag):
    RESET = 1  # the receiver does not know this flow: begin anew
    REFUSED = 2  # nobody takes it; the text says why
    UNREACHABLE = 4  # made by a cell: there is no route to the destination; the text says which


NO_FLAGS = ParcelFlag(0)
NO_ACK_FLAGS = AckFlag(0)
_KNOWN_FLAGS = sum(ParcelFlag)
_KNOWN_ACK_FLAGS = sum(AckFlag)


@dataclass(frozen=True, slots=True)
class CellParcel:
    """One piece of a flow between two cells, with the cells that it still passes.

    A cell on the list that is not its end forwards the frame as it is, but for two bytes: `position` is one more,
    `hops_left` one less. Both are at fixed places, so that nothing else has to be read or copied.
    """

    flow: int
    sequence: int
    destination: str
    source: str
    body: bytes = b""
    flags: ParcelFlag = NO_FLAGS
    hops_left: int = MAX_HOPS
    position: int = 0  # of the next cell in `hops`; as many as there are: the destination is next
    hops: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """What follows the version byte."""
        names = [_name(self.destination, "destination"), _name(self.source, "source")]
        self._check()
        if any(len(hop) != CELL_ID_BYTES for hop in self.hops):
            raise ProtocolError(f"a cell id has {CELL_ID_BYTES} bytes")
        numbers = (self.flags, self.hops_left, self.position, len(self.hops), len(names[0]), len(names[1]), 0)
        head = b"".join(unsigned(number, 1, "parcel header") for number in numbers)
        return b"".join(
            (
                head,
                unsigned(self.flow, 8, "flow"),
                unsigned(self.sequence, 4, "sequence"),
                *self.hops,
                *names,
                self.body,
            )
        )

    @staticmethod
    def decode(content: bytes) -> CellParcel:
        """The parcel in what follows the version byte; ProtocolError says what is wrong with it."""
        cursor = Cursor(content, "PARCEL")
        flags, hops_left, position, count, to, by, zero = cursor.take(7, "parcel header")
        flow, sequence = cursor.unsigned(8, "flow"), cursor.unsigned(4, "sequence")
        if flags & ~_KNOWN_FLAGS or zero or flags & (ParcelFlag.RETURNED | ParcelFlag.ABSENT) == ParcelFlag.ABSENT:
            raise ProtocolError(f"PARCEL: reserved bits are set (flags 0x{flags:02x}, byte 0x{zero:02x})")
        if not to or not by:
            raise ProtocolError("PARCEL: destination and source have at least one byte each")
        hops = tuple(cursor.take(CELL_ID_BYTES, "hop") for _ in range(count))
        parcel = CellParcel(
            flow, sequence, cursor.text(to, "destination"), cursor.text(by, "source"), cursor.rest(),
            ParcelFlag(flags), hops_left, position, hops,
        )  # fmt: skip
        parcel._check()
        return parcel

    def _check(self) -> None:
        if len(self.hops) > MAX_HOPS or self.hops_left > MAX_HOPS:
            raise ProtocolError(f"PARCEL: {len(self.hops)} hops, {self.hops_left} left; at most {MAX_HOPS} are allowed")
        if self.position > len(self.hops):
            raise ProtocolError(f"PARCEL: position {self.position} in a list of {len(self.hops)} hops")


def _name(text: str, field: str) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= MAX_NAME_BYTES:
        raise ProtocolError(f"the {field} of a parcel has 1 to {MAX_NAME_BYTES} bytes, not {len(raw)}")
    return raw


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The body of a parcel with the flag ACK: what the receiver of a flow has, and has room for."""

    expected: int  # all sequences below have arrived
    room: int  # bytes of bodies, from the beginning of the flow, that the receiver has room for
    newest: int = 0  # sequence of the parcel that arrived last,
    arrival_ns: int = 0  # and when, by the receiver's monotonic clock
    ranges: tuple[tuple[int, int], ...] = ()  # of sequences that arrived beyond: ascending, ends exclusive
    flags: AckFlag = NO_ACK_FLAGS
    text: str = ""  # with REFUSED and UNREACHABLE: for people

    def encode(self) -> bytes:
        """The body; its text is cut where the parcel would become too long."""
        if len(self.ranges) > MAX_RANGES:
            raise ProtocolError(f"an acknowledgement has at most {MAX_RANGES} ranges, not {len(self.ranges)}")
        _check_ranges(self.expected, self.ranges)
        fixed = b"".join(
            (
                bytes((ACK_VERSION, self.flags)),
                unsigned(self.expected, 4, "next sequence"),
                unsigned(self.room, 8, "room"),
                unsigned(self.newest, 4, "newest sequence"),
                unsigned(self.arrival_ns, 8, "arrival"),
                bytes((len(self.ranges),)),
                *(unsigned(edge, 4, "range") for pair in self.ranges for edge in pair),
            )
        )
        return fixed + _cut(self.text.encode(), MAX_TEXT_BYTES)

    @staticmethod
    def decode(body: bytes) -> Acknowledgement:
        """The acknowledgement in the body of an ACK parcel; ProtocolError says what is wrong with it."""
        cursor = Cursor(body, "acknowledgement")
        version, flags = cursor.take(2, "version")
        if version != ACK_VERSION:
            raise ProtocolError(f"acknowledgement of version {version}, this side knows {ACK_VERSION}")
        if flags & ~_KNOWN_ACK_FLAGS:
            raise ProtocolError(f"acknowledgement with reserved flags 0x{flags:02x}")
        expected, room = cursor.unsigned(4, "next sequence"), cursor.unsigned(8, "room")
        newest, arrival_ns = cursor.unsigned(4, "newest sequence"), cursor.unsigned(8, "arrival")
        count = cursor.unsigned(1, "ranges")
        if count > MAX_RANGES:
            raise ProtocolError(f"an acknowledgement has at most {MAX_RANGES} ranges, not {count}")
        ranges = tuple((cursor.unsigned(4, "range"), cursor.unsigned(4, "range")) for _ in range(count))
        _check_ranges(expected, ranges)
        text = cursor.text(len(body) - FIXED_ACK_BYTES - 8 * count, "text")
        if len(text.encode()) > MAX_TEXT_BYTES or (text and not flags & (AckFlag.REFUSED | AckFlag.UNREACHABLE)):
            raise ProtocolError(f"acknowledgement: only a refusal has a text, of at most {MAX_TEXT_BYTES} bytes")
        return Acknowledgement(expected, room, newest, arrival_ns, ranges, AckFlag(flags), text)


def _check_ranges(expected: int, ranges: tuple[tuple[int, int], ...]) -> None:
    """Sequences go round after 2**32: ranges ascend as distances from the next one expected."""
    last = 0
    for start, end in ranges:
        first, past = (start - expected) & 0xFFFF_FFFF, (end - expected) & 0xFFFF_FFFF
        if not last <= first < past < MAX_OUTSTANDING:
            raise ProtocolError(f"acknowledgement: the range {start} to {end} is not behind what is before it")
        last = past


def _cut(text: bytes, most: int) -> bytes:
    return text[:most].decode(errors="ignore").encode()
