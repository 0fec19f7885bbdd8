"""What one cell tells another about a name: whose it is, and by which cells it is reached (BF-12)."""

from __future__ import annotations

import msgspec

UNBOUNDED = 1e12  # bytes a second; nothing is faster


class Candidate(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A cell near the sender that can be the next main cell toward a name."""

    cell: bytes
    bandwidth: float  # bytes a second, of all paths from that cell to the name


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """All that a peer update says about one name. Without candidates the name is known, but not reached."""

    name: str
    cell: bytes  # which has that name
    stamp: int  # of that cell: it raises it from time to time, so that names of the dead are forgotten
    candidates: tuple[Candidate, ...] = ()
    inflow: float = UNBOUNDED  # bytes a second that all links into that cell carry: no way to it can be wider
