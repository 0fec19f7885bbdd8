"""The rows that a leaf broker shows to operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chappe.status.leaf.parts import LeafParts
from chappe.status.leaf.state import PathSegment
from chappe.status.leaf.topology_state import ChannelState
from chappe.wire.base import Grant, Variable

Row = dict[str, Any]


def rows(leaf: LeafParts, what: str) -> list[Row]:
    """KeyError names what can be asked for."""
    if what not in LISTINGS:
        raise KeyError(f"a leaf broker knows no {what!r}; it shows {', '.join(sorted(LISTINGS))}")
    return list(LISTINGS[what](leaf))


def _loads(leaf: LeafParts) -> dict[str, Row]:
    return {row["resource"]: row for row in leaf.cloud.allocator.loads()}


def _all_loads(leaf: LeafParts) -> Iterator[Row]:
    yield from leaf.cloud.allocator.loads()


def _share(row: Row | None, mode: int) -> tuple[float, float]:
    if row is None:
        return 0.0, 0.0
    load = row["load"][mode]
    return load, load / row["capacity"] if row["capacity"] else 0.0


def _routers(leaf: LeafParts) -> Iterator[Row]:
    loads = _loads(leaf)
    for router in leaf.cloud.topology_state.routers.values():
        load, share = _share(loads.get(f"router/{router.name}"), leaf.modes.mode)
        yield {"name": router.name, "cloud": leaf.cloud.role, "edge": router.edge, "up": router.up,
               "x": router.x, "y": router.y, "events_per_s": router.events_per_s, "load": load,
               "share": share}  # fmt: skip


def _channels(leaf: LeafParts) -> Iterator[Row]:
    loads = _loads(leaf)

    def fuller(channel: ChannelState) -> tuple[float, float]:
        directions = ((channel.a, channel.b), (channel.b, channel.a))
        return max(_share(loads.get(f"channel/{a}/{b}"), leaf.modes.mode) for a, b in directions)

    for channel in leaf.cloud.topology_state.channel_states.values():
        load, share = fuller(channel)
        yield {"a": channel.a, "b": channel.b, "level": channel.level, "up": channel.up,
               "bytes_per_s": channel.bytes_per_s, "latency_ms": channel.latency_ns / 1e6,
               "security": channel.security, "load": load, "share": share, "owner": channel.owner}  # fmt: skip


def _publications(leaf: LeafParts) -> Iterator[Row]:
    for publication in leaf.registry.by_id.values():
        variable = publication.variable
        yield {"publisher": variable.publisher, "variable": variable.variable, "variable_id": variable.variable_id,
               "type": variable.type, "rate": variable.rate_num * 1e9 / variable.rate_den,
               "edge": publication.edge}  # fmt: skip


def _subscriptions(leaf: LeafParts) -> Iterator[Row]:
    for subscription in leaf.subscriptions.by_key.values():
        grants = [grant for grant in subscription.grants if grant is not None]
        first = grants[0] if grants else None
        yield {"key": subscription.key, "subscriber": subscription.entity or "function", "edge": subscription.edge,
               "publisher": subscription.publisher, "variable": subscription.name, "modes": subscription.modes,
               "redundancy": first.redundancy if first else 0,
               "interval_ms": first.interval_ns / 1e6 if first else None,
               "latency_ms": first.latency_ns / 1e6 if first else None, "paths": len(subscription.segments),
               "state": subscription.state}  # fmt: skip


def _paths(leaf: LeafParts) -> Iterator[Row]:
    for subscription in leaf.subscriptions.by_key.values():
        if subscription.variable is not None:
            for segment in subscription.segments:
                yield _path(
                    leaf, subscription.variable, subscription.key, subscription.entity, segment, subscription.grants
                )
    for item in leaf.segments.by_key.values():
        for segment in item.segments:
            yield _path(leaf, item.variable, item.key, "", segment, item.grants)


def _path(leaf: LeafParts, variable: Variable, key: str, subscriber: str, segment: PathSegment,
          grants: tuple[Grant | None, ...]) -> Row:  # fmt: skip
    intervals = [grant.interval_ns / 1e6 if grant is not None and segment.modes >> mode & 1 else None
                 for mode, grant in enumerate(grants)]  # fmt: skip
    return {"publisher": variable.publisher, "variable": variable.variable, "key": key, "subscriber": subscriber,
            "redundant": segment.redundant, "routers": list(segment.routers), "before": segment.before,
            "after": segment.after, "modes": segment.modes, "intervals_ms": intervals,
            "security": leaf.cloud.allocator.security(segment.routers)}  # fmt: skip


def _entities(leaf: LeafParts) -> Iterator[Row]:
    for name, known in leaf.entities.by_name.items():
        yield {"name": name, "edge": known.edge, "attached": known.there,
               "publications": len(leaf.registry.by_entity.get(name, ())),
               "subscriptions": len(leaf.subscriptions.by_owner.get(name, ()))}  # fmt: skip


def _floods(leaf: LeafParts) -> Iterator[Row]:
    floods = leaf.flooding.floods
    for variable in floods.variables():
        levels = [level or None for level in floods.levels(variable.variable_id)]
        yield {"publisher": variable.publisher, "variable": variable.variable, "levels": levels,
               "rank": max(floods.ranks(variable.variable_id))}  # fmt: skip


def _functions(leaf: LeafParts) -> Iterator[Row]:
    for item in leaf.functions.by_id.values():
        function = item.function
        yield {"publisher": function.publisher, "variable": function.variable, "cloud": leaf.cloud.role,
               "creator": item.creator,
               "home": item.home or leaf.cloud.role, "router": item.router, "calculator": function.calculator,
               "trigger": function.trigger,
               "inputs": [f"{each.publisher}/{each.variable}" for each in function.inputs],
               "parts": [f"{each.publisher}/{each.variable}" for each in item.parts],
               "remote": ["/".join(name) for name in item.remote]}  # fmt: skip


def _modes(leaf: LeafParts) -> Iterator[Row]:
    yield {"broker": leaf.cloud.role, "mode": leaf.modes.mode, "next": leaf.modes.next, "rank": leaf.modes.rank}


def _clouds(leaf: LeafParts) -> Iterator[Row]:
    routers = leaf.cloud.topology_state.routers.values()
    up = sum(router.up for router in routers)
    yield {"name": leaf.cloud.role, "up": True, "routers": len(routers), "routers_up": up}


LISTINGS: dict[str, Callable[[LeafParts], Iterator[Row]]] = {
    "routers": _routers,
    "channels": _channels,
    "publications": _publications,
    "subscriptions": _subscriptions,
    "paths": _paths,
    "entities": _entities,
    "floods": _floods,
    "functions": _functions,
    "modes": _modes,
    "loads": _all_loads,
    "clouds": _clouds,
}
