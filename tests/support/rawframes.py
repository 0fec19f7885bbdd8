"""Frames of a connection before its handshake, for tests that play the other side."""

from __future__ import annotations

from chappe.links.link import Raw
from chappe.wire.frames import HEADER_SIZE


async def read_frame(raw: Raw) -> tuple[int, bytes]:
    """Kind and payload of the next frame; what follows it can still be read."""
    data = b""
    while len(data) < HEADER_SIZE or len(data) < HEADER_SIZE + int.from_bytes(data[1:HEADER_SIZE], "big"):
        more = await raw.read_some()
        assert more, "the other side has closed the connection"
        data += more
    end = HEADER_SIZE + int.from_bytes(data[1:HEADER_SIZE], "big")
    raw.unread(data[end:])
    return data[0], data[HEADER_SIZE:end]
