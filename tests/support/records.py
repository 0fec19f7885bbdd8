"""Records for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from chappe.measure.record import Record, link_of
from chappe.store.records import Row

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NOW = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z, a Thursday
LINK = link_of("tcp://host:9000")


def record(**fields: Any) -> Record:
    """One with everything that must be there."""
    given: dict[str, Any] = {"node": "a", "stamp_ns": NOW, "uri": "tcp://host:9000", "realm": "east", **fields}
    given.setdefault("link", link_of(given["uri"]))
    return Record(**given)


def links(number: int, seed: int = 7, stamp_ns: int = NOW) -> list[Record]:
    """Records of so many links, each of its own."""
    rng = random.Random(seed)
    return [
        record(
            node=f"n{place % 50}", peer=f"n{(place + 1) % 50}", uri=f"tcp://host-{place}:9000",
            stamp_ns=stamp_ns + place, transport="tcp", user_group="A", interval_ms=1000.0, window=16, outliers=1,
            latency_ms=rng.uniform(0.1, 100.0), deviation_ms=rng.uniform(0, 5), jitter_ms=rng.uniform(0, 2),
            jitter=rng.uniform(0, 0.1), loss=rng.choice([0.0, 0.0, 0.02]), cost=rng.uniform(1, 100), profile="default",
        )
        for place in range(number)
    ]  # fmt: skip


def rows(records: Sequence[Record]) -> list[Row]:
    """As the tables take them."""
    return [msgspec.structs.astuple(each) for each in records]
