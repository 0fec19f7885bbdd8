"""Rows of a broker's log as feeds.md has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[str, str, int, str | None]


def row(action: str, subject: str, at: int, **detail: Any) -> Row:
    return action, subject, at, json.dumps(detail)


def grant(every: int = 1, interval_ns: int = 1, bound_ns: int = 0, redundancy: int = 1) -> dict[str, int]:
    return {"interval_ns": interval_ns, "every": every, "latency_ns": 1, "redundancy": redundancy, "priority": 3,
            "bound_ns": bound_ns}  # fmt: skip


def subscribe(
    at: int, entity: str, subject: str, *, edge: str = "e", variable_id: int = 1, rate: tuple[int, int] = (1, 1),
    granted: Sequence[Mapping[str, int] | None] = (), modes: int = 0xFFFF,
) -> Row:  # fmt: skip
    return row(
        "subscribe", subject, at, entity=entity, edge=edge, variable_id=variable_id, type="float", rate_num=rate[0],
        rate_den=rate[1], modes=modes, wanted=[], granted=list(granted) or [grant()], took_ns=5,
    )  # fmt: skip


def path(at: int, variable_id: int, number: int, *routers: str) -> list[Row]:
    """A path through routers, as each of them is told."""
    ends = ["", *routers, ""]
    return [
        row("path", router, at + place, paths=[
            {"variable_id": variable_id, "name": "v", "path": number, "source": ends[place], "target": ends[place + 2],
             "intervals_ns": [0], "priorities": [3], "modes": 0xFFFF}
        ])
        for place, router in enumerate(routers)
    ]  # fmt: skip
