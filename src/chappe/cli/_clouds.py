"""A grid cut into clouds of about the same size, each connected, with few branches between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from chappe.errors import ConfigError

SLACK = 0.1  # a cloud may be so much larger or smaller than its share
STARTS = 24  # first seeds that are tried; the cut with the fewest branches wins
Neighbours = list[set[int]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many sites a cloud should have."""

    least: int
    most: int

    def beyond(self, size: int) -> int:
        """How far a cloud of that size is from it; far ones count more."""
        return max(0, size - self.most, self.least - size) ** 2


def cut(count: int, branches: list[tuple[int, int]], clouds: int) -> list[int]:
    """The cloud of each of `count` sites; always the same for the same grid. ConfigError if it has several pieces."""
    if not 1 <= clouds <= count:
        raise ConfigError(f"--clouds {clouds}: a grid of {count} sites has 1 to {count} clouds")
    neighbours: Neighbours = [set() for _ in range(count)]
    for a, b in branches:
        neighbours[a].add(b)
        neighbours[b].add(a)
    apart = count - len(_reached(0, set(range(count)), neighbours))
    if apart:
        raise ConfigError(f"the grid has several pieces: {apart} of its {count} sites cannot be reached from the first")
    share = count / clouds
    wanted = Sizes(min(math.floor(share), math.ceil((1 - SLACK) * share)),
                   max(math.ceil(share), math.floor((1 + SLACK) * share)))  # fmt: skip
    tried = [_improved(_grown(seeds, neighbours), neighbours, wanted) for seeds in _seeds(neighbours, clouds)]
    best = min(tried, key=lambda of: (sum(map(wanted.beyond, _sizes(of))), _crossing(of, branches), of))
    order = {cloud: place for place, cloud in enumerate(dict.fromkeys(best))}
    return [order[cloud] for cloud in best]


def _seeds(neighbours: Neighbours, clouds: int) -> Iterator[list[int]]:
    """Seeds far from each other, once for each of several first ones."""
    count = len(neighbours)
    for first in dict.fromkeys(step * count // STARTS for step in range(STARTS)):
        seeds = [first]
        while len(seeds) < clouds:
            away = _distances(seeds, neighbours)
            seeds.append(
                max((site for site in range(count) if site not in seeds), key=lambda site: (away[site], -site))
            )
        yield seeds


def _distances(seeds: list[int], neighbours: Neighbours) -> dict[int, int]:
    away = dict.fromkeys(seeds, 0)
    ring = seeds
    while ring:
        beyond = dict.fromkeys(site for at in ring for site in sorted(neighbours[at]) if site not in away)
        away |= dict.fromkeys(beyond, away[ring[0]] + 1)
        ring = [*beyond]
    return away


def _grown(seeds: list[int], neighbours: Neighbours) -> list[int]:
    """Each cloud grows from its seed, always the smallest that can; so each is connected."""
    of = [-1] * len(neighbours)
    clouds = [[seed] for seed in seeds]
    for cloud, seed in enumerate(seeds):
        of[seed] = cloud
    for _ in range(len(neighbours) - len(seeds)):
        cloud, site = min(
            (
                (len(clouds[cloud]), -sum(of[near] == cloud for near in neighbours[site]), cloud, site)
                for cloud, members in enumerate(clouds)
                for site in {near for member in members for near in neighbours[member] if of[near] < 0}
            ),
        )[2:]
        of[site] = cloud
        clouds[cloud].append(site)
    return of


def _improved(of: list[int], neighbours: Neighbours, wanted: Sizes) -> list[int]:
    """Sites at borders change sides while that evens out the sizes, or cuts fewer branches within the slack."""
    sizes = _sizes(of)
    for _ in range(20 * len(of)):
        moves = [*_moves(of, sizes, neighbours, wanted)]
        if not moves:
            return of
        _, _, site, cloud = min(moves)
        sizes[of[site]] -= 1
        sizes[cloud] += 1
        of[site] = cloud
    return of


def _moves(
    of: list[int], sizes: list[int], neighbours: Neighbours, wanted: Sizes
) -> Iterator[tuple[int, int, int, int]]:
    """(change of unevenness, change of crossing branches, site, new cloud), each of them for the better."""
    for site, cloud in enumerate(of):
        here = sum(of[near] == cloud for near in neighbours[site])
        for other in {of[near] for near in neighbours[site]} - {cloud}:
            crossing = here - sum(of[near] == other for near in neighbours[site])
            over = wanted.beyond(sizes[cloud] - 1) + wanted.beyond(sizes[other] + 1)
            over -= wanted.beyond(sizes[cloud]) + wanted.beyond(sizes[other])
            if (over, crossing) < (0, 0) and sizes[cloud] > 1 and _stays(site, cloud, of, neighbours):
                yield over, crossing, site, other


def _stays(site: int, cloud: int, of: list[int], neighbours: Neighbours) -> bool:
    """The rest of its cloud is connected without this site."""
    rest = {each for each, at in enumerate(of) if at == cloud and each != site}
    return len(_reached(next(iter(rest)), rest, neighbours)) == len(rest)


def _reached(start: int, within: set[int], neighbours: Neighbours) -> set[int]:
    reached, left = {start}, [start]
    while left:
        for site in (neighbours[left.pop()] & within) - reached:
            reached.add(site)
            left.append(site)
    return reached


def _sizes(of: list[int]) -> list[int]:
    sizes = [0] * (max(of) + 1)
    for cloud in of:
        sizes[cloud] += 1
    return sizes


def _crossing(of: list[int], branches: list[tuple[int, int]]) -> int:
    return sum(of[a] != of[b] for a, b in branches)
