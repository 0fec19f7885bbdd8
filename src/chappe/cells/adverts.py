"""Peer updates: what they may contain, how much bandwidth follows from them, and their differences (BF-12, BF-13)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from chappe.cells.names import check_name
from chappe.errors import ProtocolError
from chappe.wire.celladverts import UNBOUNDED, Candidate, Entry
from chappe.wire.parcels import CELL_ID_BYTES

CEILING = UNBOUNDED  # whatever somebody says
MOST_ENTRIES = 8192  # of one message
MOST_CANDIDATES = 8  # of one entry
MOST_STAMP = 2**63
WORTH_TELLING = 0.10  # share by which a bandwidth changes before it is told again


class Difference(NamedTuple):
    """What makes one advert of another."""

    changed: tuple[Entry, ...] = ()  # new ones, and those that replace one of the same name
    removed: tuple[str, ...] = ()


def sane(bandwidth: float) -> float:
    """A bandwidth as somebody gave it, between 0 and what can be; NaN is 0."""
    return min(max(bandwidth, 0.0), CEILING) if bandwidth == bandwidth else 0.0


def checked(entries: Collection[Entry], most: int = MOST_ENTRIES) -> list[Entry]:
    """The entries of a neighbour with sane numbers; ProtocolError says what no cell would send."""
    if len(entries) > most:
        raise ProtocolError(f"a peer update has {len(entries)} entries; at most {most} are allowed")
    return [_checked(entry) for entry in entries]


def _checked(entry: Entry) -> Entry:
    try:
        check_name(entry.name)
    except ValueError as error:
        raise ProtocolError(f"peer update: {error}") from None
    cells: list[bytes] = []
    well, usual = len(entry.cell) == CELL_ID_BYTES, True
    for candidate in entry.candidates:  # a plain loop: new neighbours send thousands of entries
        cells.append(candidate.cell)
        well = well and len(candidate.cell) == CELL_ID_BYTES
        usual = usual and 0 <= candidate.bandwidth <= CEILING
    if not well:
        raise ProtocolError(f"peer update: a cell id has {CELL_ID_BYTES} bytes")
    if len(cells) > MOST_CANDIDATES or len(set(cells)) < len(cells):
        raise ProtocolError(f"peer update: at most {MOST_CANDIDATES} candidates a name, and each once")
    if not 0 <= entry.stamp < MOST_STAMP:
        raise ProtocolError(f"peer update: the stamp {entry.stamp} is out of range")
    if usual and 0 <= entry.inflow <= CEILING:
        return entry
    candidates = tuple(Candidate(one.cell, sane(one.bandwidth)) for one in entry.candidates)
    return Entry(entry.name, entry.cell, entry.stamp, candidates, sane(entry.inflow))


def combined(
    sender: bytes,
    destination: bytes,
    candidates: Iterable[Candidate],
    excluded: Collection[bytes],
    cap: Callable[[bytes, bytes], float],
    direct: float = 0.0,
) -> float:
    """AB(s -> x | r): bandwidth from a sender to a destination by what avoids the receiver's neighbourhood (BF-13).

    `destination` is the cell that has the name, `cap` says how much the sender can bring to a candidate, `direct` how
    much it sends to the destination over a link of its own.
    """
    if sender == destination:
        return CEILING
    total = direct
    for candidate in candidates:
        over_its_link = direct > 0 and candidate.cell == destination  # which is counted already
        if candidate.cell not in excluded and not over_its_link:
            total += min(candidate.bandwidth, cap(sender, candidate.cell))
    return min(total, CEILING)


def differences(sent: Mapping[str, Entry], now: Mapping[str, Entry]) -> Difference:
    """What a neighbour that has heard `sent` must hear of `now`; bandwidths only if they changed by more than 10 %."""
    changed = tuple(entry for name, entry in now.items() if name not in sent or _is_news(sent[name], entry))
    return Difference(changed, tuple(name for name in sent if name not in now))


def apply(advert: dict[str, Entry], difference: Difference) -> None:
    """Bring an advert to what it is after a difference."""
    for name in difference.removed:
        advert.pop(name, None)
    for entry in difference.changed:
        advert[entry.name] = entry


def _is_news(sent: Entry, now: Entry) -> bool:
    if (sent.cell, sent.stamp) != (now.cell, now.stamp) or len(sent.candidates) != len(now.candidates):
        return True
    if not math.isclose(sent.inflow, now.inflow, rel_tol=WORTH_TELLING):
        return True
    before = {candidate.cell: candidate.bandwidth for candidate in sent.candidates}
    return any(
        candidate.cell not in before
        or not math.isclose(before[candidate.cell], candidate.bandwidth, rel_tol=WORTH_TELLING)
        for candidate in now.candidates
    )
