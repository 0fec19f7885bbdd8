"""How far clocks are apart, from the smallest delays between them: what is proven is corrected, the rest is a bound.

A publisher stamps an event by its clock, an archive notes the arrival by its own, and no event arrives before it was
made. So the smallest delay seen, less the largest that the smallest true delay can be, lies below the difference of
the clocks, and the smallest delay itself above it. Where that interval contains zero nothing shows that a clock is
wrong and it is believed; elsewhere the middle is taken. The rest of the interval is the uncertainty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Delay(NamedTuple):
    """The smallest delay between the stamps of one clock and one archive."""

    source: str
    clock: str
    least_ns: int
    events: int


class Basis(StrEnum):
    """What a correction rests on."""

    BELIEVED = "believed"  # nothing shows that it is wrong
    SHOWN = "shown"  # delays show that it is wrong
    TORN = "torn"  # delays contradict each other: a clock was set, or the bound is too small
    UNKNOWN = "unknown"  # no delay was seen


class Correction(NamedTuple):
    """What is taken off the readings of a clock, and by how much that may be wrong, to either side."""

    offset_ns: int
    uncertainty_ns: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class Corrections:
    """Of archives and of the clocks of publishers, against the clock of the reference."""

    reference: str
    sources: dict[str, Correction]
    clocks: dict[str, Correction]


def corrections(delays: Iterable[Delay], bound_ns: int) -> Corrections:
    """Corrections of all clocks; the archive that saw most is the reference.

    `bound_ns`: no publisher is further from an archive, in the best case, than this.
    """
    seen = list(delays)
    rows: Counter[str] = Counter()
    by_clock: dict[str, list[Delay]] = defaultdict(list)
    for delay in seen:
        rows[delay.source] += delay.events
        by_clock[delay.clock].append(delay)
    if not seen:
        return Corrections("", {}, {})
    reference = min(rows, key=lambda source: (-rows[source], source))
    sources = _sources(reference, rows, by_clock, bound_ns)
    clocks = {}
    for clock, several in by_clock.items():
        spans = []
        for each in several:
            offset, unsure, _ = sources[each.source]
            spans.append((offset - each.least_ns - unsure, offset - each.least_ns + bound_ns + unsure))
        clocks[clock] = _choose(spans)
    return Corrections(reference, sources, clocks)


def _sources(
    reference: str, rows: Iterable[str], by_clock: dict[str, list[Delay]], bound_ns: int
) -> dict[str, Correction]:
    """Archives against the reference, by the publishers that both hear."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for several in by_clock.values():
        theirs = [each.least_ns for each in several if each.source == reference]
        for each in several:
            if theirs and each.source != reference:
                apart = each.least_ns - theirs[0]
                spans[each.source].append((apart - bound_ns, apart + bound_ns))
    same = Correction(0, 0, Basis.BELIEVED)
    return {source: same if source == reference else _choose(spans[source]) for source in sorted(rows)}


def _choose(spans: Sequence[tuple[int, int]]) -> Correction:
    if not spans:
        return Correction(0, 0, Basis.UNKNOWN)
    low, high = max(span[0] for span in spans), min(span[1] for span in spans)
    if low > high:
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        return Correction((low + high) // 2, -(-(high - low) // 2), Basis.TORN)
    if low <= 0 <= high:
        return Correction(0, max(-low, high), Basis.BELIEVED)
    return Correction((low + high) // 2, -(-(high - low) // 2), Basis.SHOWN)
