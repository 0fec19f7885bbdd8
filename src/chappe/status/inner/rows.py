"""What an inner broker shows to operators: flat rows, the same columns in every row of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chappe.status.allocation.allocation import Allocator
from chappe.status.flooding.inner import TreeFloods
from chappe.status.inner.claims import Claims
from chappe.status.inner.decisions import Decision, Decisions
from chappe.status.inner.netview import NetView
from chappe.status.modes.machines import InnerModes

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ListedParts:
    """The parts of an inner broker that operators see."""

    role: str
    view: NetView
    allocator: Allocator
    claims: Claims
    decisions: Decisions
    flooding: TreeFloods
    modes: InnerModes


def _children(broker: ListedParts) -> Rows:
    return [{"name": child.role, "up": child.up, "mode": child.mode, "height": child.height}
            for child in broker.view.children.values()]  # fmt: skip


def _clouds(broker: ListedParts) -> Rows:
    rows: dict[str, dict[str, Any]] = {}
    for child in broker.view.children:
        for cloud in broker.view.below(child):
            up = broker.view.children[child].up
            rows[cloud] = {"name": cloud, "up": up, "routers": 0, "routers_up": 0}
    for below, router in broker.view.facts():
        row = rows[router.cloud]
        row["routers"] += 1
        row["routers_up"] += router.up and below.up
    for row in rows.values():
        # Of a cloud further down, its routers say whether its own broker is there.
        row["up"] = row["up"] and (row["name"] in broker.view.children or bool(row["routers_up"]))
    return list(rows.values())


def _loads(broker: ListedParts) -> Rows:
    own = {f"channel/{a}/{b}" for managed in broker.view.managed_channels.values()
           for a, b in ((managed.item.a, managed.item.b), (managed.item.b, managed.item.a))}  # fmt: skip
    return [row for row in broker.allocator.loads() if row["resource"] in own]


def _channels(broker: ListedParts) -> Rows:
    """Own channels with their loads; those inside of clouds are the leaf's to show."""
    mode = broker.modes.mode
    loads = {row["resource"]: row["load"][mode] for row in _loads(broker)}
    rows = []
    for managed in broker.view.managed_channels.values():
        item = managed.item
        load = max(loads.get(f"channel/{item.a}/{item.b}", 0.0), loads.get(f"channel/{item.b}/{item.a}", 0.0))
        rows.append({"a": item.a, "b": item.b, "level": item.level, "up": not managed.down,
                     "bytes_per_s": item.bytes_per_s, "latency_ms": item.latency_ns / 1e6, "security": item.security,
                     "load": load, "share": load / item.bytes_per_s, "owner": broker.role})  # fmt: skip
    return rows


def _routers(broker: ListedParts) -> Rows:
    specs = broker.view.topology.routers
    mode = broker.modes.mode
    rows = []
    for below, router in broker.view.facts():
        spec = specs.get(router.name)
        load = router.load[mode] if router.load else 0.0
        rows.append({"name": router.name, "cloud": router.cloud, "edge": router.edge, "up": router.up and below.up,
                     "x": spec.x if spec else 100.0, "y": spec.y if spec else 100.0,
                     "events_per_s": router.events_per_s, "load": load,
                     "share": load / router.events_per_s if router.events_per_s else 0.0})  # fmt: skip
    return rows


def _decided(broker: ListedParts) -> list[Decision]:
    return [decision for decision in broker.decisions.all.values() if not decision.ended]


def _subscriptions(broker: ListedParts) -> Rows:
    rows = []
    for decision in _decided(broker):
        item = decision.item
        request = item.seek.request
        grant = item.grants[broker.modes.mode] or next(grant for grant in item.grants if grant is not None)
        rows.append({"key": decision.key, "subscriber": request.entity.name, "edge": item.seek.edge,
                     "publisher": request.publisher, "variable": request.variable, "modes": request.modes,
                     "redundancy": grant.redundancy, "interval_ms": grant.interval_ns / 1e6,
                     "latency_ms": grant.latency_ns / 1e6, "paths": len(item.routes)})  # fmt: skip
    return rows


def _paths(broker: ListedParts) -> Rows:
    """Whole paths from cloud to cloud; each leaf shows its own segments."""
    rows = []
    for decision in _decided(broker):
        item = decision.item
        request = item.seek.request
        for routers, redundant, modes in item.routes:
            intervals = [grant.interval_ns / 1e6 if grant is not None and modes >> mode & 1 else None
                         for mode, grant in enumerate(item.grants)]  # fmt: skip
            rows.append({"publisher": request.publisher, "variable": request.variable, "key": decision.key,
                         "subscriber": request.entity.name, "redundant": redundant, "routers": list(routers),
                         "before": "", "after": "", "modes": modes, "intervals_ms": intervals,
                         "security": broker.allocator.security(routers)})  # fmt: skip
    return rows


def _floods(broker: ListedParts) -> Rows:
    floods = broker.flooding.floods
    return [{"publisher": variable.publisher, "variable": variable.variable,
             "levels": [level or None for level in floods.levels(variable.variable_id)],
             "rank": max(floods.ranks(variable.variable_id))} for variable in floods.variables()]  # fmt: skip


def _modes(broker: ListedParts) -> Rows:
    modes = broker.modes
    return [{"broker": broker.role, "mode": modes.mode, "next": modes.next, "rank": modes.rank}]


def _publishers(broker: ListedParts) -> Rows:
    return [{"publisher": publisher, "cloud": item.cloud, "kept": item.kept}
            for publisher, item in sorted(broker.claims.items.items())]  # fmt: skip


ROWS: dict[str, Callable[[ListedParts], Rows]] = {
    "children": _children,
    "clouds": _clouds,
    "channels": _channels,
    "routers": _routers,
    "subscriptions": _subscriptions,
    "paths": _paths,
    "floods": _floods,
    "modes": _modes,
    "publishers": _publishers,
    "loads": _loads,
}
