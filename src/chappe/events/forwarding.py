"""Where the events of a topic go from this node: asked once a topic and again when map or interest change.

The publisher's node plans a tree of nodes and units; a node on it only follows it; the first node of a unit plans what
is inside that unit and nothing else. So each node gets an event once, whatever the maps of others say (MR-019, MR-022).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from chappe.errors import ProtocolError
from chappe.events.interest import Pattern, Subscriptions, Wanted, matches
from chappe.events.planner import HASTY, Marks, Planned, Planner
from chappe.events.previous_routes import PreviousRoutes
from chappe.events.source_route import MAX_REROUTES, SourceRoute, Step, Unit, branches, decode, encode
from chappe.events.trace import returns, without_own
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.routes import Route
from chappe.linkstate.units import Address, VertexId
from chappe.wire.addresses import KIND

PLAIN = SourceRoute()
NOBODY: frozenset[str] = frozenset()
BUSY_MS = 1.0  # nodes on the way may be late by so much, beside what was measured
Branches = tuple[tuple[str, bytes], ...]
KEPT = 1 << 16  # plans and decoded routes, as many as the engine has routes


@dataclass(frozen=True, slots=True)
class NextHops:
    """What a node does with the events of one topic that came by one route."""

    local: bool  # deliver to the subscribers of this node
    branches: tuple[tuple[str, bytes], ...] = ()  # (peer, route) of each copy that leaves
    hold_ns: int = 0  # how long the first events wait, so that they do not overtake those on the old route
    groups: tuple[str, ...] | None = None  # queue groups served here; None: all that have members here
    undeliverable: tuple[VertexId, ...] = ()  # destinations that have no route now
    rest: bytes = b""  # the route to them and to nothing else: events are kept with it, and it is asked for again
    back: bool = False  # a branch leads to where the route came from, as only one planned anew after a loss may
    denied: int = 0  # destinations that it is withheld from by rules of this node,
    incapable: int = 0  # and those that lack a capability, or all routes to which do


class ForwardingTable:
    """The routes of one node.

    Call `changed()` whenever the network map or interest, others' or that of own queue groups, is another one.
    `profiles` gives topics a profile of their own, the first pattern that matches counts; `connected` says whether a
    peer can be sent to at this moment.
    """

    def __init__(
        self,
        me: Address,
        state: LinkState,
        mine: Subscriptions | None = None,
        profile: str = "default",
        profiles: Sequence[tuple[Pattern, str]] = (),
        connected: Callable[[str], bool] = lambda peer: True,
        needs: Sequence[tuple[Pattern, tuple[str, ...]]] = (),
        denied: Callable[[str, bytes], frozenset[str]] = lambda kind, topic: NOBODY,
    ) -> None:
        self.me = me
        self.mine = mine if mine is not None else Subscriptions()
        self.profile = profile
        self.profiles = tuple(profiles)
        self.generation = 0
        self.needs = tuple(needs)
        self._denied = denied
        self._state = state
        self._connected = connected
        self._last = PreviousRoutes()
        self._decoded: dict[bytes, SourceRoute] = {}
        self._plans: dict[tuple[object, ...], Planned] = {}
        self._before: dict[tuple[object, ...], Planned] = {}
        self._followed: dict[tuple[str, bytes], NextHops] = {}
        self._known: dict[tuple[str, int], tuple[dict[VertexId, frozenset[str]], Planned]] = {}
        self._holds: dict[tuple[Planned, Planned], int] = {}
        self._planner = Planner(me, state, connected)
        self._view = state.routes.view

    # --- what is asked

    def changed(self) -> None:
        """Routes may have changed: computed ones are forgotten, the last one of each topic is kept for comparison."""
        self.generation += 1
        self._before = dict(self._plans) or self._before
        self._forget()
        self._holds.clear()
        self._planner.changed()

    def publish(self, kind: str, topic: bytes) -> NextHops:
        """Where events of this node's own clients go."""
        if kind == KIND:
            return self._publish_to_node(topic)
        wanted = self._state.wanting(kind, topic)
        self._refresh()
        profile = self.profile
        for pattern, name in self.profiles:
            if matches(pattern, kind, topic):
                profile = name
                break
        needs, denied = self._needs(kind, topic), self._denied(kind, topic)
        if needs or denied:
            return self._publish_restricted(profile, kind, topic, wanted, needs, denied)
        # Most topics share what is wanted with many others: then there is one object for all of them.
        known = self._known.get((profile, id(wanted)))
        if known is not None and known[0] is wanted:
            planned = known[1]
        elif any(names != {""} for names in wanted.values()):
            return self._publish_to_groups(profile, kind, topic, wanted)
        else:
            planned = self._planned(profile, {vertex_id: Wanted(True) for vertex_id in wanted})
            self._known[profile, id(wanted)] = wanted, planned
        hold_ns = self._hold((kind, topic), planned)
        return NextHops(True, planned.branches, hold_ns, None, planned.undeliverable, self._rest_of(planned, profile))

    def _publish_to_node(self, topic: bytes) -> NextHops:
        """Events to an address go to the one node that it names, whoever subscribed to whatever."""
        self._refresh()
        address = Address.read(topic.decode())
        if address == self.me:
            return NextHops(True)
        marks = {vertex_id: Wanted(True) for vertex_id in self._planner.locate(address)}
        if not marks:
            return NextHops(False)
        planned = self._planned(self.profile, marks)
        hold_ns = self._hold((KIND, topic), planned)
        rest = self._rest_of(planned, self.profile)
        return NextHops(False, planned.branches, hold_ns, None, planned.undeliverable, rest)

    def _publish_to_groups(
        self, profile: str, kind: str, topic: bytes, wanted: dict[VertexId, frozenset[str]]
    ) -> NextHops:
        marks, here = self._chosen(kind, topic, wanted, None)
        planned = self._planned(profile, marks)
        hold_ns = self._hold((kind, topic), planned)
        rest = self._rest_of(planned, profile)
        return NextHops(True, planned.branches, hold_ns, here.groups, planned.undeliverable, rest)

    def _publish_restricted(
        self, profile: str, kind: str, topic: bytes, wanted: dict[VertexId, frozenset[str]], needs: tuple[str, ...],
        denied: frozenset[str],
    ) -> NextHops:  # fmt: skip
        """Events that not every node may have: they go round the others."""
        names = frozenset(VertexId(0, name) for name in denied)
        avoid = names | self._planner.lacking(needs) if needs else names
        capable = {
            vertex_id: groups if vertex_id not in avoid else groups & {""} for vertex_id, groups in wanted.items()
        }
        marks, here = self._chosen(kind, topic, capable, None)
        planned = self._planned(profile, marks, needs, names)
        hold_ns = self._hold((kind, topic), planned)
        rest = self._rest_of(planned, profile, msgspec.structs.replace(PLAIN, needs=needs))
        withheld = _counted(planned.withheld, names, needs)
        return NextHops(True, planned.branches, hold_ns, here.groups, planned.undeliverable, rest, False, *withheld)

    def _needs(self, kind: str, topic: bytes) -> tuple[str, ...]:
        """What every node must be capable of that events of a topic cross."""
        for pattern, words in self.needs:
            if matches(pattern, kind, topic):
                return words
        return ()

    def _planned(
        self, profile: str, marks: Marks, needs: tuple[str, ...] = (), denied: frozenset[VertexId] = frozenset()
    ) -> Planned:
        key = (profile, frozenset(marks.items()), needs, denied)
        planned = self._plans.get(key)
        if planned is None:
            planned = self._planner.plan(profile, marks, needs=needs, denied=denied)
            before = self._before.get(key)
            if before is not None and before.same(planned):
                planned = before  # so that topics which are not published for long do not keep many alike
            self._plans[key] = planned
        return planned

    def forward(self, peer: str, source_route: bytes, kind: str, topic: bytes) -> NextHops:
        """Where events go that came from a peer with this route; ProtocolError if the route makes no sense here."""
        found = self._read(source_route)
        self._refresh()
        if not found.tree:
            return self._enter(peer, source_route, found, kind, topic)
        hops = self._followed.get((peer, source_route))
        if hops is None:
            hops = self._followed[peer, source_route] = self._follow(peer, found)
        return hops

    def reroute(self, source_route: bytes, served: str = "") -> NextHops:
        """Where events go that were sent to a lost peer with this route and not confirmed, or were kept with it.

        Tell the network map of the loss first. Nodes that have the event already pass it on and do not deliver it;
        `served` is the lost peer if it had the event: it may be another process when it is back, and know it no more.
        """
        self._refresh()
        key = ("reroute", source_route, served)
        planned = self._plans.get(key)
        found = self._read(source_route)
        if served and served not in found.served:
            found = msgspec.structs.replace(found, served=(*found.served, served)[-MAX_REROUTES:])
        if planned is None:
            planned = self._plans[key] = self._planner.repair(found, found.tree, [found.units] if found.units else [])
        rest = _rest(found, planned.undeliverable) if planned.undeliverable else b""
        return NextHops(False, planned.branches, 0, (), planned.undeliverable, rest)

    def patience(self, source_route: bytes) -> int:
        """How often an event with this route was planned anew beyond what is done at once: 0 if it need not wait."""
        return max(0, self._read(source_route).reroutes - HASTY + 1)

    # --- on the way

    def _follow(self, peer: str, source_route: SourceRoute) -> NextHops:
        """Inside a cluster nothing is decided: the tree says what is next."""
        step = source_route.tree[0]
        if step.node != self.me.node:
            raise ProtocolError(
                f"route begins at {step.node!r}, this is {self.me.node!r}: {peer} sent it to the wrong node"
            )
        ready: list[tuple[str, bytes]] = []
        lost: list[VertexId] = []
        rest = b""
        broken: list[Step] = []
        astray: list[Sequence[Unit]] = []
        for tree in branches(source_route.tree[1:]):
            if tree[0].node == peer and not source_route.reroutes:  # an event never returns
                lost += [VertexId(0, below.node) for below in tree if below.deliver or below.groups]
            elif self._connected(tree[0].node):
                ready.append((tree[0].node, encode(msgspec.structs.replace(source_route, tree=tuple(tree)))))
            else:
                broken += tree
        for units in branches(step.leaves):
            route_out = self._planner.exit(
                source_route.profile, VertexId(units[0].level, units[0].name), source_route.trace
            )
            if route_out is None or (route_out[0] == peer and not source_route.reroutes):
                astray.append(units)
            else:
                onward = msgspec.structs.replace(source_route, tree=(), units=tuple(units), trace=route_out[1])
                ready.append((route_out[0], encode(onward)))
        if broken or astray:
            hasty = HASTY <= source_route.reroutes < MAX_REROUTES
            planned = (self._planner.waiting if hasty else self._planner.repair)(source_route, broken, astray)
            ready += planned.branches
            lost += planned.undeliverable
            rest = self._rest_of(planned, source_route.profile, source_route)
        local = step.deliver or bool(step.groups)
        back = any(to == peer for to, _ in ready)
        return NextHops(local, tuple(ready), 0, step.groups, tuple(lost), rest, back)

    def _enter(self, peer: str, raw: bytes, source_route: SourceRoute, kind: str, topic: bytes) -> NextHops:
        """The first node of a unit plans for that unit: its inside, and where the units beyond are entered from it."""
        root = source_route.units[0]
        if not 1 <= root.level <= self.me.depth or self.me.path(root.level) != VertexId(root.level, root.name).path:
            raise ProtocolError(f"route enters {root.name!r}, this node is in {'/'.join(self.me.unit)!r}: wrong link")
        back = returns({**self._planner.names(), root.level: root.name}.values(), source_route.trace)
        if back:
            raise ProtocolError(f"route from {peer} returns to {back!r}, which it had left; it is dropped")
        elsewhere = self._planner.elsewhere(root)
        if elsewhere and self._planner.names()[root.level] in source_route.trace:
            return self._pass_on(peer, source_route)
        marks: Marks = {}
        here = Wanted(False)
        if kind == KIND:
            address = Address.read(topic.decode())
            here = Wanted(address == self.me)
            if not here:
                marks = {vertex_id: Wanted(True) for vertex_id in self._planner.locate(address, root.level)}
        elif root.deliver or root.groups:
            inside = {t: names for t, names in self._state.wanting(kind, topic).items() if t.level < root.level}
            marks, here = self._chosen(kind, topic, inside, root)
        missing = sorted(set(root.groups).difference(here.groups, *(there.groups for there in marks.values())))
        for node in source_route.served:  # with its groups: the first node of a unit serves those it has members of
            marks.pop(VertexId(0, node), None)
        # the one destination of an address may be in this part of the unit
        found = kind == KIND and (here.plain or any(not vertex_id.level for vertex_id in marks))
        denied = frozenset(VertexId(0, name) for name in self._denied(kind, topic))
        key = (raw, frozenset(marks.items()), here.groups, found, denied)
        planned = self._plans.get(key)
        if planned is None:
            parts = self._planner.parts(root, tuple(missing)) if not found else []
            if elsewhere and not found:  # who sent it here may be right: it is delivered here as well
                parts = [(Unit(root.level, root.name, 0, root.deliver, tuple(missing)),)]
            onward = [*branches(source_route.units[1:]), *parts]
            trace, reroutes = source_route.trace, source_route.reroutes
            planned = self._planner.plan(
                source_route.profile,
                marks,
                onward,
                root.level,
                trace,
                reroutes,
                source_route.served,
                needs=source_route.needs,
                denied=denied,
            )
            if missing and not parts:  # the last member for this topic has gone in between
                planned = replace(planned, undeliverable=(*planned.undeliverable, VertexId(root.level, root.name)))
            self._plans[key] = planned
        rest = self._rest_of(planned, source_route.profile, source_route)
        local = (
            here.plain if kind == KIND else root.deliver or bool(here.groups)
        ) and self.me.node not in source_route.served
        ready, turns = self._turning(peer, planned.branches)
        withheld = _counted(planned.withheld, denied, source_route.needs)
        return NextHops(local, ready, 0, here.groups, planned.undeliverable, rest, turns, *withheld)

    def _pass_on(self, peer: str, source_route: SourceRoute) -> NextHops:
        """An event that was here, for another part of a unit that the sender takes for whole."""
        trace = without_own(self.me, source_route.trace)
        planned = self._planner.plan(
            source_route.profile,
            {},
            [source_route.units],
            1,
            trace,
            source_route.reroutes,
            source_route.served,
            needs=source_route.needs,
        )
        rest = self._rest_of(planned, source_route.profile, source_route)
        ready, turns = self._turning(peer, planned.branches)
        return NextHops(False, ready, 0, (), planned.undeliverable, rest, turns)

    def _turning(self, peer: str, branches: Branches) -> tuple[Branches, bool]:
        """Branches of a plan, and whether one leads to where the event came from, as only one planned anew may.

        Whoever sent an event here for another part of its own unit is where the route to that unit leads from here if
        this node takes it for whole: it counts as planned anew from here on, and the sender finds another route.
        """
        ready = []
        for to, onward in branches:
            source_route = self._read(onward)
            again = to == peer and not source_route.reroutes
            ready.append((to, encode(msgspec.structs.replace(source_route, reroutes=1)) if again else onward))
        return tuple(ready), any(to == peer for to, _ in ready)

    def _chosen(
        self, kind: str, topic: bytes, wanted: dict[VertexId, frozenset[str]], unit: Unit | None
    ) -> tuple[Marks, Wanted]:
        """Who gets an event, here and elsewhere: all plain subscribers, and of each queue group one place.

        Members at this node come first; else the choice goes round with the topic and the generation. For a unit on a
        route only what that route asks of it: the other groups are served elsewhere.
        """
        plain = unit is None or unit.deliver
        marks = {vertex_id: Wanted(True) for vertex_id, names in wanted.items() if plain and "" in names}
        here = self.mine.wants(kind, topic)
        if unit is not None:
            here = Wanted(here.plain and plain, tuple(g for g in here.groups if g in unit.groups))
        members: dict[str, list[VertexId]] = {}
        for vertex_id, names in wanted.items():
            for group in names:
                if group and group not in here.groups and (unit is None or group in unit.groups):
                    members.setdefault(group, []).append(vertex_id)
        for group, vertex_ids in sorted(members.items()):
            turn = zlib.crc32(group.encode(), zlib.crc32(topic)) + self.generation
            vertex_id = sorted(vertex_ids)[turn % len(vertex_ids)]
            old = marks.get(vertex_id, Wanted(False))
            marks[vertex_id] = Wanted(old.plain, (*old.groups, group))
        return marks, here

    def _rest_of(self, planned: Planned, profile: str, source_route: SourceRoute = PLAIN) -> bytes:
        """The route from here to what a plan could not reach; empty if there is nothing to wait for."""
        if not planned.waiting:
            return b""
        nodes = [Step(vertex_id.name, 0, *wanted) for vertex_id, wanted in planned.waiting if vertex_id.level == 0]
        units = tuple(Unit(*vertex_id, 0, *wanted) for vertex_id, wanted in planned.waiting if vertex_id.level)
        here = Step(self.me.node, len(nodes), False, (), units)
        try:
            return encode(
                SourceRoute(
                    (here, *nodes),
                    (),
                    source_route.trace,
                    profile,
                    source_route.reroutes,
                    source_route.served,
                    source_route.needs,
                )
            )
        except ProtocolError:
            return b""

    # --- what was before

    def _hold(self, topic: tuple[str, bytes], planned: Planned) -> int:
        """How long events wait so that none overtakes one on the old route: by how much the new one is quicker."""
        old = self._last.replace(topic, planned)
        if old is None or old is planned:
            return 0
        hold = self._holds.get((old, planned))
        if hold is None:
            hold = self._holds[old, planned] = max(
                (
                    self._difference_ns(route, planned.routes[vertex_id][1])
                    for vertex_id, (path, route) in old.routes.items()
                    if vertex_id in planned.routes and planned.routes[vertex_id][0] != path
                ),
                default=0,
            )
        return hold

    def _difference_ns(self, old: Route, new: Route) -> int:
        """By how much the new route is quicker at most: as both are measured now, else as they were when taken.

        What both vary by counts, and a millisecond for nodes that were busy: the difference of the means alone would
        let an event be overtaken as often as not.
        """
        old_ms, old_spread = self._planner.latency_ms(old.links)
        new_ms, new_spread = self._planner.latency_ms(new.links)
        slowest = (old.latency_ms if math.isnan(old_ms) else old_ms) + old_spread
        quickest = (new.latency_ms if math.isnan(new_ms) else new_ms) - new_spread
        gain_ms = slowest - quickest
        return round((gain_ms + BUSY_MS) * 1e6) if math.isfinite(gain_ms) and gain_ms > 0 else 0

    def _refresh(self) -> None:
        """Forget what was computed if the map has other links: a route may name some that no route in use passes."""
        if self._state.routes.view is not self._view:
            self._view = self._state.routes.view
            self.changed()
        if max(len(self._plans), len(self._followed), len(self._known)) > KEPT:
            self._forget()

    def _forget(self) -> None:
        self._plans.clear()
        self._followed.clear()
        self._known.clear()

    def _read(self, raw: bytes) -> SourceRoute:
        source_route = self._decoded.get(raw)
        if source_route is None:
            source_route = decode(raw)
            if len(self._decoded) >= KEPT:
                self._decoded.clear()
            self._decoded[raw] = source_route
        return source_route


def _counted(withheld: Iterable[VertexId], denied: frozenset[VertexId], needs: tuple[str, ...]) -> tuple[int, int]:
    """How many of these are withheld by rules, and how many for what they, or all routes to them, cannot do."""
    vertex_ids = list(withheld)
    incapable = sum(vertex_id not in denied for vertex_id in vertex_ids) if needs else 0
    return len(vertex_ids) - incapable, incapable


def _rest(source_route: SourceRoute, left: Iterable[VertexId]) -> bytes:
    """The route with these destinations alone."""
    names = set(left)

    def units(forest: tuple[Unit, ...]) -> tuple[Unit, ...]:
        return tuple(u if (u.level, u.name) in names else Unit(u.level, u.name, u.below, False) for u in forest)

    steps = tuple(
        Step(s.node, s.below, s.deliver, s.groups, units(s.leaves))
        if (0, s.node) in names
        else Step(s.node, s.below, False, (), units(s.leaves))
        for s in source_route.tree
    )
    return encode(msgspec.structs.replace(source_route, tree=steps, units=units(source_route.units)))
