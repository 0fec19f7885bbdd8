"""Version 2 of the parcel header: what cells write behind the version byte of a PARCEL frame (BF)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from chappe.errors import ProtocolError
from chappe.wire.frames import Cursor, unsigned

CELL_ID_BYTES = 8
MAX_HOPS = 64
MAX_NAME_BYTES = 255


class ParcelFlag(IntFlag):
    FIRST = 1  # of its flow
    LAST = 2
    ACK = 4  # the body acknowledges parcels of the flow in the other direction
    MULTICAST = 8  # the destination is a prefix: every cell whose name begins with it
    RETURNED = 16  # a hop could not be reached: it goes back to the cell that chose its hops


NO_FLAGS = ParcelFlag(0)
_KNOWN_FLAGS = sum(ParcelFlag)


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
        if flags & ~_KNOWN_FLAGS or zero:
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
