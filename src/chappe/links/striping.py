"""One stream of bytes over several connections, without I/O: numbered blocks, put in order, sent again when lost.

A block is `kind u8, sequence u64, length u32, payload`. DATA and END are numbered together from 1; an ACK carries the
number of the next block that is wanted, in place of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from chappe.errors import ProtocolError

BLOCK_SIZE = 32_768
WINDOW = 4 << 20  # bytes that are not confirmed: what either side keeps at most
HEAD = struct.Struct(">BQI")
MAGIC = b"CHAPPAR1"
PREFACE = struct.Struct(">8s16sBB")  # magic, identifier of the link, which connection of how many


class Block(IntEnum):
    """What a block is."""

    DATA = 1
    ACK = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Preface:
    """First bytes of each connection, from the one who dialled."""

    link: bytes
    index: int
    count: int

    def encode(self) -> bytes:
        return PREFACE.pack(MAGIC, self.link, self.index, self.count)


def read_preface(data: bytes, most: int) -> Preface:
    """ProtocolError says what is wrong with it."""
    magic, link, index, count = PREFACE.unpack(data)
    if magic != MAGIC:
        raise ProtocolError("these are not the first bytes of a parallel link; this address serves nothing else")
    if not (2 <= count <= most and index < count):
        raise ProtocolError(f"connection {index} of {count} is none of a parallel link; 2 to {most} may belong to one")
    return Preface(link, index, count)


class BlockReader:
    """Finds blocks in the bytes of one connection, however they are cut."""

    def __init__(self) -> None:
        self._arrived = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Block, int, bytes]]:
        """Kind, number and payload of each block that is complete; ProtocolError if it can be none."""
        self._arrived += data
        at = 0
        try:
            while len(self._arrived) - at >= HEAD.size:
                kind, number, size = HEAD.unpack_from(self._arrived, at)
                if kind not in (1, 2, 3) or size > BLOCK_SIZE or (kind != Block.DATA and size):
                    raise ProtocolError("the other side does not speak as one end of a parallel link")
                if len(self._arrived) - at < HEAD.size + size:
                    break
                payload = bytes(self._arrived[at + HEAD.size : at + HEAD.size + size])
                at += HEAD.size + size
                yield Block(kind), number, payload
        finally:
            del self._arrived[:at]


class Sending:
    """Blocks on their way there, kept until they are confirmed."""

    def __init__(self) -> None:
        self.unconfirmed = 0  # bytes
        self._first = 1  # that is not confirmed
        self._next = 1
        self._blocks: dict[int, tuple[int, bytes]] = {}  # connection and whole block by number, in order

    @property
    def room(self) -> int:
        """Bytes that may be sent before something is confirmed."""
        return WINDOW - self.unconfirmed

    @property
    def done(self) -> bool:
        """Everything is confirmed."""
        return not self._blocks

    def put(self, connection: int, payload: bytes, kind: Block = Block.DATA) -> bytes:
        """The next block, on that connection."""
        block = HEAD.pack(kind, self._next, len(payload)) + payload
        self._blocks[self._next] = (connection, block)
        self._next += 1
        self.unconfirmed += len(payload)
        return block

    def confirmed(self, wanted: int) -> None:
        """The other side wants that number next; ProtocolError if it was never sent."""
        if wanted > self._next:
            raise ProtocolError(f"block {wanted} is wanted of a parallel link that has sent {self._next - 1}")
        for number in range(self._first, wanted):
            self.unconfirmed -= len(self._blocks.pop(number)[1]) - HEAD.size
        self._first = max(self._first, wanted)

    def lost(self, connection: int) -> list[int]:
        """The numbers of the blocks that must go by another connection."""
        return [number for number, (which, _) in self._blocks.items() if which == connection]

    def again(self, number: int, connection: int) -> bytes:
        """That block, on another connection."""
        block = self._blocks[number][1]
        self._blocks[number] = (connection, block)
        return block


class Receiving:
    """Blocks as they come, given on in order and once."""

    def __init__(self) -> None:
        self.wanted = 1
        self.waiting = 0  # bytes
        self._blocks: dict[int, tuple[Block, bytes]] = {}

    def put(self, kind: Block, number: int, payload: bytes) -> None:
        """A block has come; a repeated one changes nothing. ProtocolError if the other side sends more than agreed."""
        if number < self.wanted or number in self._blocks:
            return
        if number - self.wanted > WINDOW or self.waiting + len(payload) > 2 * WINDOW:
            raise ProtocolError(f"a parallel link has {self.waiting} bytes under way; {WINDOW} may be")
        self._blocks[number] = (kind, payload)
        self.waiting += len(payload)

    def take(self) -> tuple[Block, bytes] | None:
        """The next block in order; None if it has not come."""
        block = self._blocks.pop(self.wanted, None)
        if block is not None:
            self.wanted += 1
            self.waiting -= len(block[1])
        return block

    def confirmation(self) -> bytes:
        """An ACK for all that was taken."""
        return HEAD.pack(Block.ACK, self.wanted, 0)
