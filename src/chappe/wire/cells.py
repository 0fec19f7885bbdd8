"""Control messages between neighbouring cells; what they mean is in docs/reference/cells.md."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chappe.wire.base import Message, Notice
from chappe.wire.celladverts import Entry
from chappe.wire.constants import CELL_ID_BYTES, MAX_HOPS, MAX_NAME_BYTES

MAX_RADIUS = 4
MAX_NAMES = 1024  # of one cell
MAX_RECORDS = 64  # in one message: a cell works on them for about a millisecond
MAX_LINKS = 1024  # of one cell
MAX_ENTRIES = 64  # of one peer update: a cell works on them for about a millisecond
MAX_SEQUENCE = 1 << 62

CellId = Annotated[bytes, Meta(min_length=CELL_ID_BYTES, max_length=CELL_ID_BYTES)]
CellName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
Sequence = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]
Url = Annotated[str, Meta(min_length=1, max_length=512)]


Named = tuple[CellName, Sequence]
"""A name, and when its cell got it, in ms since 1970: where two cells have one, the later counts."""


class CellRecord(msgspec.Struct, array_like=True, frozen=True):
    """What every cell may know of one: who it is, where it listens and which names its clients have.

    The newer sequence counts; of two with the same, the one that says that the cell has failed.
    """

    id: CellId
    sequence: Sequence
    address: Annotated[str, Meta(min_length=1, max_length=600)]  # "unit/node"; the id is made of it
    urls: Annotated[tuple[Url, ...], Meta(max_length=8)] = ()
    reachable: bool = True  # whether others may try to connect to it
    names: Annotated[tuple[Named, ...], Meta(max_length=MAX_NAMES)] = ()
    alive: bool = True


class CellHello(Notice):
    """First message of a cell on a link, from both ends."""

    record: CellRecord
    radius: Annotated[int, Meta(ge=1, le=MAX_RADIUS)] = 2
    wanted: bool = False  # the sender wants this link for itself


class CellWanted(Notice):
    """Whether the sender wants this link; one that neither end wants is hung up."""

    on: bool


Heard = tuple[Annotated[int, Meta(ge=0, le=MAX_HOPS)], CellRecord]
"""A record, and over how many links it has come."""


class CellRecords(Notice):
    """Records that are new to the sender, or all that it has, when a link has come up; passed on to all cells."""

    records: Annotated[tuple[Heard, ...], Meta(max_length=MAX_RECORDS)]


CellLink = tuple[CellId, float]
"""A neighbour, and the bandwidth towards it in bytes a second."""


class CellLinks(Notice):
    """A link update: the links of one cell, sent to all cells within so many hops of it (BF-11)."""

    origin: CellId
    sequence: Sequence
    hops_left: Annotated[int, Meta(ge=0, le=MAX_RADIUS)]
    links: Annotated[tuple[CellLink, ...], Meta(max_length=MAX_LINKS)] = ()


class CellPeers(Notice):
    """A peer update: what has changed since the one before it on this link (BF-12)."""

    sequence: Sequence  # one more with each; a gap is answered by CellResync
    first: bool = False  # forget everything before it
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)] = ()
    removed: Annotated[tuple[CellName, ...], Meta(max_length=MAX_ENTRIES)] = ()


class CellResync(Notice):
    """A peer update is missing: send everything again."""


CELLS: tuple[type[Message], ...] = (CellHello, CellWanted, CellRecords, CellLinks, CellPeers, CellResync)
