"""How many entries every table of a node has: found by walking its objects, so that none is forgotten."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from chappe.runtime.node import Node

CONTAINERS = (dict, set, frozenset, list, tuple, deque, bytearray)


def tables(root: object, package: str = "chappe.") -> Counter[str]:
    """Entries by `Class.attribute`, of all objects of the package that can be reached from this one.

    Containers inside a container count with it. What holds exactly as many entries as the code says (an empty one, a
    record) is in the sums all the same: only their growth matters.
    """
    sizes: Counter[str] = Counter()
    seen = {id(root)}
    objects: deque[object] = deque([root])
    while objects:
        for name, value in _attributes(objects.popleft()):
            _count(name, value, sizes, seen, objects, package)
    return sizes


def _attributes(thing: object) -> Iterable[tuple[str, object]]:
    kind = type(thing)
    for name, value in list(getattr(thing, "__dict__", {}).items()):
        yield f"{kind.__name__}.{name}", value
    for base in kind.__mro__:
        for name in _slots(base):
            value = getattr(thing, name, None)
            if value is not None:
                yield f"{kind.__name__}.{name}", value


def _slots(base: type) -> tuple[str, ...]:
    found = base.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def _count(name: str, value: object, sizes: Counter[str], seen: set[int], objects: deque[object], package: str) -> None:
    left: list[object] = [value]
    while left:
        each = left.pop()
        if isinstance(each, str | bytes | int | float | bool | type(None)) or id(each) in seen:
            continue
        if isinstance(each, CONTAINERS):
            seen.add(id(each))
            sizes[name] += 0 if isinstance(each, tuple) else len(each)  # a record, or a key of two parts
            if isinstance(each, dict):
                left += [*each.keys(), *each.values()]
            elif not isinstance(each, bytearray):
                left += each
        elif type(each).__module__.startswith(package):
            seen.add(id(each))
            objects.append(each)


def sizes_of(node: Node) -> dict[str, float]:
    """Every table of a running node, and what its engine, its process and its interpreter hold."""
    engine = node.engine
    found: dict[str, Any] = dict(tables(node))
    found |= {
        "engine.memory_bytes": engine.memory_bytes(),
        "engine.open_ports": len(engine.open_ports()),
        "engine.topics": engine.topics.count(),
        "engine.forwarding_entries": engine.topics.routed_topics,
        "engine.topic_nodes": engine.topics.nodes(),
        "engine.subscriptions": engine.topics.subscriptions(),
        "engine.status_entries": engine.status.entries(),
        "engine.status_sets": engine.status.sets(),
        "process.descriptors": len(os.listdir("/proc/self/fd")),
        "process.tasks": len(asyncio.all_tasks()),
        "process.objects": len(gc.get_objects()),
    }
    return found
