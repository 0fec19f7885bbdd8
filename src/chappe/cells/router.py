"""Which paths parcels to a destination take, and in which shares (BF-17 to BF-25)."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from chappe.cells.adverts import CEILING, combined
from chappe.cells.names import ANY, least_gap
from chappe.cells.neighbourhood import CellPath, Neighbourhood
from chappe.cells.trie import KnownName, Trie
from chappe.engine.routes import ParcelRoute
from chappe.wire.celladverts import Candidate, Entry

SECOND = 10**9
MOST_ROUTES = 64  # to one destination
MOST_CHOICES = 16  # next main cells to one destination; the paths to each are computed
MOST_LISTED = 4  # candidates that are advertised for one name
MOST_EXCLUSIONS = 4096


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How many paths there are to a main cell, and how long a broken one is left out."""

    paths: int = 8  # D
    exclusion_ns: int = 30 * SECOND  # doubled each time
    exclusion_most_ns: int = 600 * SECOND


class Router:
    """Decides as a main cell does: first the next main cell, then the paths to it.

    `names` are those of this cell, a collection that its owner may change. What comes out is valid until the names,
    the trie, the neighbourhood or the exclusions change.
    """

    def __init__(
        self,
        names: Collection[str],
        trie: Trie,
        neighbourhood: Neighbourhood,
        rng: random.Random,
        settings: RouterSettings = RouterSettings(),
    ) -> None:
        self.names = names
        self.trie = trie
        self.neighbourhood = neighbourhood
        self.settings = settings
        self._rng = rng
        self._excluded: dict[tuple[str, tuple[bytes, ...]], tuple[int, int]] = {}  # until when, and how long that is
        self._looked_ns = 0

    # --- decisions

    def routes(self, destination: str, now_ns: int) -> list[ParcelRoute]:
        """The paths to a destination, which has passed `check_destination`; `[]` if there is no way now.

        Their shares are those of the next main cell (1) times those of the path to it (2), and add up to 1.
        """
        routes = self._flattened(destination, self.candidates(destination, now_ns), now_ns)
        return routes or self._flattened(destination, self._nearer_members(destination), now_ns)

    def candidates(self, destination: str, now_ns: int) -> dict[bytes, float]:
        """Step 1: the next main cells and their weights, min(AB, maximum flow to the cell) (BF-17).

        They have advertised the destination, or the nearest known name if it is unknown (BF-19), or they have it; and
        they are strictly nearer to it than every name of this cell (BF-18).
        """
        known = self.trie.nearest(destination)
        if known is None:
            return {}
        known.count_use(now_ns, self.trie.settings)
        nearer = self._nearer(destination, self.bandwidths(known))
        return self._limited(nearer)

    def bandwidths(self, known: KnownName) -> dict[bytes, float]:
        """AB of each cell of the neighbourhood toward a name.

        What a cell says itself is combined as section 3.1 wants it. Of a cell that only others speak of, which have
        it as a candidate, their highest number counts.
        """
        members = self.neighbourhood.members
        found: dict[bytes, float] = {}
        for candidates in known.statements.values():
            for candidate in candidates:
                cell = candidate.cell
                if cell in members and cell not in known.statements:
                    found[cell] = max(candidate.bandwidth, found.get(cell, 0.0))
        excluded = members | {self.neighbourhood.me}
        for sender in known.statements:
            if sender in members:
                found[sender] = self._combined(sender, known, excluded)
        if known.cell in members:
            found[known.cell] = CEILING
        return {cell: bandwidth for cell, bandwidth in found.items() if bandwidth > 0}

    def path_toward(self, prefix: str, now_ns: int) -> tuple[bytes, ...]:
        """The hops to a cell that is nearer to a prefix, drawn by their shares; `()` if there is no way (BF-25)."""
        routes = self.routes(prefix + ANY, now_ns)
        return self._rng.choices(routes, [route.share for route in routes])[0].hops if routes else ()

    # --- what is advertised

    def entry(self, known: KnownName) -> Entry:
        """What this cell says about a name of another: the best cells that are nearer to it, with all their bandwidth.

        None has more than can come into the cell that has the name, as the nearest of them heard of it: sums over
        several cells would grow with every cell on the way. Only cells that spoke of the name themselves, or have it,
        are listed. So what is said about a name comes, step by step, from cells that are strictly nearer to it, and
        ends when the name is gone.
        """
        near, inflow, nearest = self.neighbourhood, CEILING, -1
        mine = least_gap(self.names, known.name)
        best: list[tuple[float, bytes]] = []
        for sender in {known.cell: None, **known.statements}:
            if sender not in near.members:
                continue
            gap = least_gap(self.trie.names_of(sender), known.name)
            if gap is None or (mine is not None and gap >= mine):
                continue
            if sender in known.inflows and not 0 <= nearest <= gap:
                inflow, nearest = known.inflows[sender], gap
            bandwidth = self._combined(sender, known, ())
            if sender != known.cell:
                bandwidth = min(bandwidth, near.output(sender))
            if bandwidth > 0:
                best.append((-bandwidth, sender))
        best.sort()
        listed = tuple(
            Candidate(cell, -negative if cell == known.cell else min(-negative, inflow))
            for negative, cell in best[:MOST_LISTED]
        )
        return Entry(known.name, known.cell, known.stamp, listed, inflow)

    def own_entry(self, name: str, stamp: int) -> Entry:
        """What this cell says about a name of its own: with what can come here."""
        return Entry(name, self.neighbourhood.me, stamp, (), self.neighbourhood.inflow())

    # --- broken paths

    def exclude(self, destination: str, hops: tuple[bytes, ...], now_ns: int) -> None:
        """Leave out a path that returned or swallowed parcels to a destination, each time twice as long."""
        until_ns, length_ns = self._excluded.pop((destination, hops), (now_ns, 0))
        doubled = 2 * length_ns if now_ns < until_ns + length_ns else 0
        length_ns = min(max(doubled, self.settings.exclusion_ns), self.settings.exclusion_most_ns)
        self._excluded[destination, hops] = now_ns + length_ns, length_ns
        if len(self._excluded) > MOST_EXCLUSIONS:
            del self._excluded[next(iter(self._excluded))]

    def readmit(self, destination: str) -> None:
        """A cell has got the name: what was broken before does not count."""
        self._excluded = {key: value for key, value in self._excluded.items() if key[0] != destination}

    def end_exclusions(self, now_ns: int) -> set[str]:
        """Destinations of which a path may be used again since the last call; their routes are to be asked again."""
        ended = {key[0] for key, (until_ns, _) in self._excluded.items() if self._looked_ns < until_ns <= now_ns}
        self._looked_ns = now_ns
        self._excluded = {key: (until, long) for key, (until, long) in self._excluded.items() if now_ns < until + long}
        return ended

    # --- how

    def _combined(self, sender: bytes, known: KnownName, excluded: Collection[bytes]) -> float:
        near = self.neighbourhood
        direct = near.bandwidth(sender, known.cell) or 0.0
        if sender == known.cell:
            return CEILING
        whole = combined(sender, known.cell, known.statements[sender], excluded, near.cap, direct)
        return min(whole, known.inflows[sender])

    def _nearer(self, destination: str, bandwidths: dict[bytes, float]) -> dict[bytes, float]:
        """Those of the cells that are strictly nearer than every own name, the best first, up to a bound."""
        mine = least_gap(self.names, destination)
        found = []
        for cell, bandwidth in bandwidths.items():
            gap = least_gap(self.trie.names_of(cell), destination)
            if gap is not None and (mine is None or gap < mine):
                found.append((-bandwidth, gap, cell))
        found.sort()
        return {cell: -negative for negative, _, cell in found[:MOST_CHOICES]}

    def _nearer_members(self, destination: str) -> dict[bytes, float]:
        """Where nobody advertised a way: every cell of the neighbourhood that is strictly nearer.

        It comes nearer too; and in a ring of names, where each has links to the next ones, it arrives.
        """
        return self._limited(self._nearer(destination, dict.fromkeys(self.neighbourhood.hops, CEILING)))

    def _limited(self, bandwidths: dict[bytes, float]) -> dict[bytes, float]:
        limited = {cell: min(value, self.neighbourhood.capacity(cell)) for cell, value in bandwidths.items()}
        return {cell: value for cell, value in limited.items() if value > 0}

    def _flattened(self, destination: str, weights: dict[bytes, float], now_ns: int) -> list[ParcelRoute]:
        """Each path to each main cell with the product of both probabilities, the largest ones (BF-23)."""
        found: list[ParcelRoute] = []
        for cell, weight in weights.items():
            paths = self._usable(destination, cell, now_ns)
            total = sum(path.capacity for path in paths)
            found += [ParcelRoute(weight * path.capacity / total, path.hops) for path in paths]
        found.sort(key=lambda route: (-route.share, route.hops))
        del found[MOST_ROUTES:]
        whole = sum(route.share for route in found)
        return [ParcelRoute(route.share / whole, route.hops) for route in found]

    def _usable(self, destination: str, cell: bytes, now_ns: int) -> list[CellPath]:
        paths = self.neighbourhood.paths(cell, self.settings.paths)
        if not self._excluded:
            return paths
        none = (0, 0)
        return [path for path in paths if self._excluded.get((destination, path.hops), none)[0] <= now_ns]
