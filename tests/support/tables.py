"""Whether the tables of routers are what brokers believe them to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from chappe.runtime.node import Node

Hop = tuple[str, str, str, str]  # variable, router, where it comes from, where it goes


def hops_of(routers: Iterable[Node]) -> Counter[Hop]:
    """What the routers have."""
    return Counter(
        (row["variable"], router.name, row["source"], row["target"])
        for router in routers
        for row in router.core.paths.rows()
    )


def expected_hops(paths: Iterable[dict[str, Any]]) -> Counter[Hop]:
    """What the routers must have by the listing `paths` of a broker."""
    found: Counter[Hop] = Counter()
    for row in paths:
        routers = [row["before"], *row["routers"], row["after"]]
        for at in range(1, len(routers) - 1):
            found[row["variable"], routers[at], routers[at - 1], routers[at + 1]] += 1
    return found
