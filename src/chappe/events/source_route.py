"""The route of an event: which nodes of a cluster it visits, where it leaves the cluster and for which units.

Both parts are trees in preorder in which every name stands once, so that a loop cannot be written down. A route has one
of two forms: inside a cluster it is a tree of nodes, the receiver first; over a link between clusters it is a tree of
units, the one that is entered first, and the receiver plans the nodes of its own cluster itself (MR-019, MR-020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from chappe.errors import ProtocolError

MAX_BYTES = 0xFFFF  # its length is a u16 in the frame
MAX_STEPS = 4096
MAX_UNITS = 4096
MAX_GROUPS = 1024
MAX_TRACE = 64  # no event goes through more units than this
MAX_LEVEL = 16
MAX_REROUTES = 8  # then it is given up: no event can be handed to and fro for ever
MAX_NAME = 1024
MAX_GROUP_NAME = 255
MAX_NEEDS = 64
MAX_WORD = 32


class Unit(msgspec.Struct, array_like=True, frozen=True):
    """A unit on the way, `below` of the following ones are reached through it."""

    level: int
    name: str  # its path, or `path@originator` for a part of a unit that fell apart
    below: int = 0
    deliver: bool = True  # plain subscribers want it there; False: it is only passed through, or for groups
    groups: tuple[str, ...] = ()  # queue groups that are served there and nowhere else


class Step(msgspec.Struct, array_like=True, frozen=True):
    """A node on the way, `below` of the following ones get it from this one."""

    node: str
    below: int = 0
    deliver: bool = True
    groups: tuple[str, ...] = ()
    leaves: tuple[Unit, ...] = ()  # a forest: units that it reaches over links of this node


class SourceRoute(msgspec.Struct, array_like=True, frozen=True):
    """What a topic number stands for besides its topic; exactly one of `tree` and `units` is filled."""

    tree: tuple[Step, ...] = ()
    units: tuple[Unit, ...] = ()
    trace: tuple[str, ...] = ()  # units that were left for good, by path: an event never comes back there
    profile: str = "default"
    reroutes: int = 0  # how often it was planned anew after a loss: if at all, nodes that had the event pass it on, too
    served: tuple[str, ...] = ()  # nodes that were lost after they had delivered the event: there it is done
    needs: tuple[str, ...] = ()  # capabilities of every node that the event may cross


_decoder = msgspec.msgpack.Decoder(SourceRoute)
_encoder = msgspec.msgpack.Encoder()


def encode(source_route: SourceRoute) -> bytes:
    """The bytes of a route; ProtocolError if they do not fit a frame."""
    raw = _encoder.encode(source_route)
    if len(raw) > MAX_BYTES:
        count = len(source_route.tree) or len(source_route.units)
        raise ProtocolError(
            f"route of {len(raw)} bytes to {count} places: at most {MAX_BYTES} fit a frame; "
            "divide the cluster into smaller ones"
        )
    return raw


def decode(raw: bytes) -> SourceRoute:
    """The route in these bytes, its structure checked; ProtocolError says what is wrong with it."""
    if len(raw) > MAX_BYTES:
        raise ProtocolError(f"route of {len(raw)} bytes: at most {MAX_BYTES} are allowed")
    try:
        source_route = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"route: {error}") from None
    _check(source_route)
    return source_route


# --- trees in preorder


class _Item(Protocol):
    @property
    def below(self) -> int: ...


T = TypeVar("T", bound=_Item)


def branches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The trees of a forest in preorder, each with what is below its first item."""
    at = 0
    while at < len(items):
        end = at + 1 + items[at].below
        yield items[at:end]
        at = end


def _check(source_route: SourceRoute) -> None:
    if bool(source_route.tree) == bool(source_route.units):
        raise ProtocolError("route: it has either a tree of nodes or a tree of units, never both or none")
    if len(source_route.tree) > MAX_STEPS:
        raise ProtocolError(f"route of {len(source_route.tree)} nodes: at most {MAX_STEPS} are allowed")
    if len(source_route.trace) > MAX_TRACE:
        raise ProtocolError(f"route through {len(source_route.trace)} units: at most {MAX_TRACE} are allowed")
    if not 0 <= source_route.reroutes <= MAX_REROUTES:
        raise ProtocolError(f"route: rerouted {source_route.reroutes} times; at most {MAX_REROUTES} are allowed")
    if len(source_route.served) > MAX_REROUTES:
        raise ProtocolError(
            f"route: {len(source_route.served)} nodes were lost on it; at most {MAX_REROUTES} are allowed"
        )
    for name in source_route.served:
        _check_name(name, "lost node")
    if len(source_route.needs) > MAX_NEEDS or any(not 1 <= len(word) <= MAX_WORD for word in source_route.needs):
        raise ProtocolError(
            f"route: {len(source_route.needs)} capabilities; at most {MAX_NEEDS} of {MAX_WORD} characters"
        )
    for name in source_route.trace:
        _check_name(name, "unit in the trace")
    _check_name(source_route.profile, "profile")
    _check_nesting([step.below for step in source_route.tree], "node", single=True)
    _check_nesting([unit.below for unit in source_route.units], "unit", single=True)
    for step in source_route.tree:
        _check_name(step.node, "node")
        _check_groups(step.groups)
        _check_nesting([unit.below for unit in step.leaves], "unit", single=False)
    if len({step.node for step in source_route.tree}) < len(source_route.tree):
        raise ProtocolError("route: a node stands twice in its tree")
    _check_units([source_route.units, *(step.leaves for step in source_route.tree)])


def _check_units(forests: list[tuple[Unit, ...]]) -> None:
    units = [unit for forest in forests for unit in forest]
    if len(units) > MAX_UNITS:
        raise ProtocolError(f"route to {len(units)} units: at most {MAX_UNITS} are allowed")
    for unit in units:
        _check_name(unit.name, "unit")
        _check_groups(unit.groups)
        if not 1 <= unit.level <= MAX_LEVEL:
            raise ProtocolError(f"route: unit {unit.name!r} of level {unit.level}; levels are 1 to {MAX_LEVEL}")
    if len({(unit.level, unit.name) for unit in units}) < len(units):
        raise ProtocolError("route: a unit stands twice in it")
    for forest in forests:
        for tree in branches(forest):
            _check_levels(tree)


def _check_levels(tree: Sequence[Unit]) -> None:
    """From a unit the route goes on to units of its level or above, never into one: that is planned in there."""
    parents: list[tuple[int, Unit]] = []
    for at, unit in enumerate(tree):
        while parents and parents[-1][0] == at:
            parents.pop()
        if parents and unit.level < parents[-1][1].level:
            raise ProtocolError(
                f"route: {unit.name!r} of level {unit.level} cannot be below {parents[-1][1].name!r} of a higher level"
            )
        parents.append((at + 1 + unit.below, unit))


def _check_nesting(below: list[int], what: str, *, single: bool) -> None:
    """Each item's `below` ends inside that of its parent; a tree has one root, a forest any number."""
    ends = [len(below)]
    for at, count in enumerate(below):
        while ends[-1] == at:
            ends.pop()
        end = at + 1 + count
        if count < 0 or end > ends[-1]:
            raise ProtocolError(f"route: {what} {at} claims {count} below it, beyond those of its parent")
        ends.append(end)
    if single and below and below[0] != len(below) - 1:
        raise ProtocolError(f"route: its tree of {what}s has more than one root")


def _check_groups(groups: tuple[str, ...]) -> None:
    if len(groups) > MAX_GROUPS:
        raise ProtocolError(f"route: {len(groups)} queue groups at one place; at most {MAX_GROUPS} are allowed")
    for group in groups:
        if not 1 <= len(group.encode()) <= MAX_GROUP_NAME:
            raise ProtocolError(
                f"route: a queue group's name has 1 to {MAX_GROUP_NAME} bytes, not {len(group.encode())}"
            )


def _check_name(name: str, what: str) -> None:
    if not 1 <= len(name) <= MAX_NAME:
        raise ProtocolError(f"route: the name of a {what} has 1 to {MAX_NAME} characters, not {len(name)}")
