"""A node as a member of the measuring mesh: measurement, network map and routes together, without a socket or clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from chappe.engine._engine import Engine
from chappe.engine.routes import ForwardingDecision
from chappe.errors import ConfigError
from chappe.events import notices
from chappe.events.forwarding import ForwardingTable, Outputs
from chappe.events.interest import Subscriptions
from chappe.events.member_links import Link, Links, joining, misplaced, proposal
from chappe.events.member_measure import Measurement
from chappe.events.member_settings import MemberSettings
from chappe.events.reporting import Measured, Reporter
from chappe.events.reroute import Reroute
from chappe.linkstate.acceptance import Verify
from chappe.linkstate.changes import CostAdvertised, InterestChanged, MapResult, Notice, RoutesChanged
from chappe.linkstate.database import Advert
from chappe.linkstate.network_map import Believe, LinkState, Sign
from chappe.linkstate.units import Address
from chappe.machine import (
    NEVER,
    AuditWritten,
    Close,
    Connected,
    Disconnected,
    Effect,
    Log,
    NodeInput,
    Publish,
    Send,
    Suspected,
)
from chappe.machine import Address as Source
from chappe.measure.cost import PROFILES, Metrics
from chappe.measure.readings import Reading
from chappe.wire.addresses import KIND
from chappe.wire.base import Message
from chappe.wire.mesh import MeshJoin, Pace, decode_advert
from chappe.wire.patterns import Pattern

Offered = Callable[[], Iterable[tuple[str, str]]]  # (kind, topic or pattern) of publications

Withheld = Callable[[str, bytes, Callable[[], Iterable[str]]], frozenset[str]]
"""Nodes among these that rules deny the events of a topic (kind, topic); they are asked for if there is such a rule."""

ASK = -1
LONGEST_PACE_NS = 86_400_000_000_000
NOWHERE, HERE = Outputs(False), Outputs(True)
READ_AT_ONCE = 20  # readings in one tick: each may be advertised to every neighbour


def _no_rules(kind: str, topic: bytes, names: Callable[[], Iterable[str]]) -> frozenset[str]:
    return frozenset()


class Member:
    """One member of the mesh. Ticks in which nothing is due cost next to nothing; new routes are applied once a tick.

    `Connected` follows `resume_port` of the engine, `Disconnected` follows `park_port`, or precedes `close_port` if it
    is final. The engine asks `plan_route` and `forward_route`: it is made first, with functions that call these.
    """

    def __init__(
        self, me: Address, engine: Engine, settings: MemberSettings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None,
        decode: Callable[[bytes], Advert] | None = None, withheld: Withheld = _no_rules,
        reporter: Reporter | None = None,
    ) -> None:  # fmt: skip
        self.me = me
        self.engine = engine
        self.settings = settings
        self.links = Links()
        self.measurement = Measurement(engine, settings, rng)
        self.state = LinkState(
            me, settings.map, rng, sign, verify, self._latest, lambda: engine.wall_ns, self._misplaced,
            decode or decode_advert,
        )  # fmt: skip
        self.mine = Subscriptions()
        profiles = [(Pattern("s", text), name) for text, name in settings.profiles]
        needs = [(Pattern("s", text), words) for text, words in settings.needs]
        self.forwarding = ForwardingTable(
            me, self.state, self.mine, settings.profile, profiles, self.links.ports.__contains__, needs,
            lambda kind, topic: withheld(kind, topic, self.state.members),
        )  # fmt: skip
        self.reroute = Reroute(
            engine,
            self.forwarding,
            self._decision,
            settings.undeliverable_ns,
            settings.undeliverable_bytes,
            settings.slice,
        )
        self.refused = 0  # messages of neighbours that were not believed
        self._rng = rng
        self._withheld = withheld
        self._reporter = reporter
        self._publications: tuple[Pattern, ...] = ()
        self._readings: deque[Reading] = deque()  # that the map does not know yet
        self._interest_changed = False
        self._offered: Offered | None = None  # publications that are not advertised yet
        self._notice_due = False
        self._routes_changed = False
        self._routes_ns = 0  # when routes were last changed
        self._state_ns = NEVER  # when the map has something to do; ASK: it is to be asked
        if settings.mesh:
            self._state_ns = ASK

    def receive(self, source: Source, message: NodeInput, now_ns: int) -> list[Effect]:
        """A link came or went, or a neighbour sent a message of the mesh."""
        assert isinstance(source, int)
        match message:
            case Connected():
                return self._connected(source, message, now_ns)
            case Disconnected(final):
                return self._removed(source, now_ns) if final else self._down(source, now_ns)
            case Suspected(on):
                return self._suspect(source, on, now_ns)
            case AuditWritten():
                return []
        return self._message(source, message, now_ns)

    def _message(self, port: int, message: Message, now_ns: int) -> list[Effect]:
        if isinstance(message, Pace):
            return self._pace(port, message)
        link = self.links.by_port.get(port)
        if link is None or link.role != "node" or not self.settings.mesh:
            return []
        if isinstance(message, MeshJoin):
            return self._join(link, message, now_ns)
        if not link.joined:
            self.refused += 1
            return [Log("a message before MeshJoin is ignored", "warning", {"link": link.name})]
        return self._follow(self.state.receive(link.name, message, now_ns))

    # --- links

    def _connected(self, port: int, connected: Connected, now_ns: int) -> list[Effect]:
        """A link can be sent to; both ends of one between nodes send MeshJoin, others are measured alone (MR-002)."""
        kind, lossy = connected.kind, connected.lossy
        if not connected.joins:
            link = Link(port, connected.name, "client", kind, lossy, since_ns=now_ns)
            self.links.add(link)
            self.measurement.add(link, now_ns)
            return []
        effects = self._down(port, now_ns) if port in self.links.by_port else []
        link = Link(port, connected.name, "node", kind, lossy, connected.link or proposal(self._rng), since_ns=now_ns)
        self.links.add(link)
        self.measurement.add(link, now_ns)
        self.reroute.returned(port)
        if not self.settings.mesh:
            return effects
        unit = "/".join(self.me.unit)
        join = MeshJoin(name=self.me.node, unit=unit, link=link.proposed, kind=kind, profiles=tuple(sorted(PROFILES)))
        return [*effects, Send(port, join)]

    def _down(self, port: int, now_ns: int) -> list[Effect]:
        """A link to another node is gone: what its other end had not confirmed takes other routes."""
        link = self.links.remove(port)
        if link is None:
            return []
        self.measurement.remove(port)
        if self._reporter is not None:
            self._reporter.lost(link, now_ns)
        if not link.joined:
            return []
        effects = self._follow(self.state.down(link.name, link.id, now_ns))
        self._new_routes()
        self.reroute.begin(port, link.name)
        self.reroute.work(now_ns)
        return effects

    def _removed(self, port: int, now_ns: int) -> list[Effect]:
        """Its port is about to be closed for good: all that it holds takes other routes now."""
        effects = self._down(port, now_ns)
        self.reroute.finish(port, now_ns)
        return effects

    def _suspect(self, port: int, on: bool, now_ns: int) -> list[Effect]:
        """The other end was silent for longer than it should, or is heard again (MR-021)."""
        link = self.links.by_port.get(port)
        if link is None or not link.joined or link.suspect is on:
            return []
        link.suspect = on
        return self._follow(self.state.suspect(link.id, on, now_ns))

    # --- what arrives

    def _misplaced(self, advert: Advert) -> str:
        return misplaced(self.settings.places, advert.originator, advert.origin if advert.level else advert.scope)

    def replan(self) -> None:
        """What is withheld from whom has changed: routes are planned anew with the next tick."""
        self._routes_changed = True

    def restate(self, now_ns: int) -> list[Effect]:
        """State everything anew, as after another certificate of this node."""
        return self._follow(self.state.restate(now_ns))

    def revalidate(self, believed: Believe, now_ns: int) -> list[Effect]:
        """Drop what was signed by nodes that are not believed any more."""
        return self._follow(self.state.revalidate(believed, now_ns))

    def _join(self, link: Link, message: MeshJoin, now_ns: int) -> list[Effect]:
        if link.joined:
            self.refused += 1
            return [Log("a second MeshJoin is ignored", "warning", {"link": link.name})]
        try:
            number, address = joining(self.me, link, message, self.settings.places)
        except ConfigError as error:
            self.refused += 1
            reason = str(error)
            line = Log("neighbour refused", "error", {"link": link.name, "reason": reason})
            return [line, Close(link.port, reason, "address")]
        other = self.links.ports.get(link.name)
        effects = self._down(other, now_ns) if other is not None and other != link.port else []
        self.links.join(link, number, address)
        effects += self._follow(self.state.up(link.name, address, number, link.kind, now_ns))
        self._routes_changed = True
        return effects

    def _pace(self, port: int, message: Pace) -> list[Effect]:
        """The other end of a link says how often it wants to be probed at most (MR-072)."""
        link = self.links.by_port.get(port)
        if link is None:
            return []
        if not -1 <= message.interval_ns <= LONGEST_PACE_NS:
            self.refused += 1
            reason = f"an interval of {message.interval_ns} ns; give one up to a day, 0 for never or -1 for any"
            return [Log("a request to be probed is ignored", "warning", {"link": link.name, "reason": reason})]
        self.measurement.initiator.limit_pace(port, None if message.interval_ns < 0 else message.interval_ns)
        return [Log("the other end chose how often it is probed", "info",
                    {"link": link.name, "interval_ns": message.interval_ns})]  # fmt: skip

    def collect(self, now_ns: int) -> None:
        """Take the echoes and train reports that the engine got, and the events for which there was no route."""
        self.measurement.arrived(now_ns)
        self.reroute.arrived(now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Advertise costs, refresh and forget, apply new routes; then `probe`."""
        effects: list[Effect] = []
        if now_ns >= self.measurement.initiator.next_ns():
            readings = self.measurement.tick(self.links, now_ns)
            if self._reporter is None:  # of a link to a client nobody needs to know then
                links = self.links.by_port
                readings = [reading for reading in readings if (link := links.get(reading.link)) and link.joined]
            self._readings += readings
        if self._readings:
            effects += self._read(now_ns)
        if self.mine.due:
            self._interest_changed = self.mine.work() or self._interest_changed
        if self._notice_due:  # in a tick of its own: thousands of publications take a millisecond each time
            self._notice_due = False
            effects.append(Publish(*notices.publications(self.me, self._publications, self.engine.wall_ns)))
        elif self._interest_changed:
            self._interest_changed = False
            if self._offered is not None:
                self._publications = tuple(Pattern(kind, text) for kind, text in self._offered())
                self._offered, self._notice_due = None, True
            effects += self._follow(self.state.want(self.mine.patterns(), self._publications, now_ns))
            self._routes_changed = True
        if now_ns >= self._map_ns():
            effects += self._follow(self.state.tick(now_ns))
        if self._routes_changed:
            self._new_routes()
        if now_ns >= self.reroute.next_ns:
            self.reroute.again(now_ns)
        if self.reroute.busy:
            self.reroute.work(now_ns)
        if self.reroute.waiting:
            self.reroute.expire(now_ns)
        return effects

    def probe(self, now_ns: int) -> bool:
        """Queue the probes that are due; whether there is any. Apart from `tick`, so that they leave at the time that
        counts as theirs and do not wait for what else is to be done."""
        return now_ns >= self.measurement.next_ns() and self.measurement.probe(now_ns)

    @property
    def busy(self) -> bool:
        """Whether `tick` should be called again at once: it works in slices, so that nobody waits for it."""
        return self.reroute.busy or bool(self._readings)

    @property
    def summarising(self) -> bool:
        """Whether `tick` should be called again soon: the interest of this node is being summarised."""
        return self.mine.due

    def next_tick(self) -> int:
        """When `tick` has something to do at the latest."""
        if self._interest_changed or self._notice_due or self._routes_changed or self.busy or self.mine.due:
            return 0
        return min(self.measurement.next_ns(), self._map_ns(), self.reroute.next_ns)

    def _map_ns(self) -> int:
        if self._state_ns == ASK:
            self._state_ns = self.state.next_ns()
        return self._state_ns

    # --- interest

    def subscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """A client of this node subscribed; once for each client. RefusedError if the node has too many groups."""
        stamp = self.mine.stamp
        advertised = self.mine.add(kind, pattern, group)
        self._interest_changed = self._interest_changed or advertised
        self._routes_changed = self._routes_changed or stamp != self.mine.stamp

    def unsubscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """It does so no more; one that was not counted changes nothing."""
        stamp = self.mine.stamp
        try:
            advertised = self.mine.remove(kind, pattern, group)
        except KeyError:
            return
        self._interest_changed = self._interest_changed or advertised
        self._routes_changed = self._routes_changed or stamp != self.mine.stamp

    def advertise(self, publications: Offered) -> None:
        """What is published here, as (kind, topic or pattern), in place of what was before (MR-133).

        It is asked for in the next tick, however often this is called until then.
        """
        self._offered = publications
        self._interest_changed = True

    # --- asked by the engine

    def plan_route(self, kind: str, topic: bytes) -> ForwardingDecision:
        """Where events of clients of this node go."""
        outputs = self.forwarding.publish(kind, topic)
        if kind == KIND and outputs == NOWHERE and self.engine.topics.match(topic.decode(), kind)[0]:
            outputs = HERE  # a neighbour that is in no mesh
        # The engine asks at the first event after a change: older ones left before it, and are that much ahead.
        ahead_ns = self.engine.mono_ns - self._routes_ns
        if outputs.hold_ns:
            outputs = replace(outputs, hold_ns=max(0, outputs.hold_ns - ahead_ns))
        return self._decision(outputs, kind, topic)

    def forward_route(self, port: int, source_route: bytes, kind: str, topic: bytes) -> ForwardingDecision:
        """Where events that came with that route go."""
        link = self.links.by_port.get(port)
        return self._decision(
            self.forwarding.forward(link.name if link is not None else "", source_route, kind, topic), kind, topic
        )

    # --- switches

    def performance(self, on: bool, now_ns: int) -> list[Effect]:
        """Route by measured costs, or by static ones (MR-117)."""
        return self._follow(self.state.perform(on, now_ns))

    def reweigh(self, port: int, now_ns: int) -> list[Effect]:
        """Others have measured a link: its cost is computed anew, with what the reporter makes of it (MR-079)."""
        link = self.links.by_port.get(port)
        if link is None or not link.joined or self._reporter is None:
            return []
        own = self.measurement.initiator.reading(port)
        metrics = self._reporter.weigh(link, own.metrics if own is not None else None)
        return [] if metrics is None else self._follow(self.state.measured(link.id, metrics, now_ns))

    # --- what follows from it

    def _read(self, now_ns: int) -> list[Effect]:
        """Give some readings to the map, and all of them to the reporter."""
        effects: list[Effect] = []
        reported: list[Measured] = []
        for _ in range(min(READ_AT_ONCE, len(self._readings))):
            reading = self._readings.popleft()
            link = self.links.by_port.get(reading.link)
            if link is None:
                continue
            before = len(effects)
            metrics = reading.metrics if self._reporter is None else self._reporter.weigh(link, reading.metrics)
            if link.joined and metrics is not None:
                # a level that changed is advertised at once; else few or noisy samples are not taken for a change
                samples = 0 if reading.restarted else reading.window - reading.outliers
                effects += self._follow(self.state.measured(link.id, metrics, now_ns, samples))
            reported.append(Measured(link, reading, len(effects) > before))
        if self._reporter is not None and reported:
            effects += self._reporter.report(reported, now_ns, self.engine.wall_ns)
        return effects

    def _quieten(self, id: bytes) -> None:
        """What that link costs is advertised: nobody needs a reading of it until it costs something else."""
        link = self.links.by_id.get(id)
        if link is not None and self._reporter is None:
            self.measurement.initiator.quiet(link.port, *self.state.advertised(id))

    def _latest(self, id: bytes) -> Metrics | None:
        """What is known of an own link now."""
        link = self.links.by_id.get(id)
        own = self.measurement.initiator.reading(link.port) if link is not None else None
        if link is None or own is None:
            return None
        return own.metrics if self._reporter is None else self._reporter.weigh(link, own.metrics)

    def _follow(self, results: Iterable[MapResult]) -> list[Effect]:
        """The effects of what the network map reports, with neighbours as ports and facts as events."""
        effects: list[Effect] = []
        notices_: list[Notice] = []
        ports = self.links.ports
        self._state_ns = ASK
        for result in results:
            if isinstance(result, Send):
                port = ports.get(str(result.to))
                if port is not None:
                    effects.append(Send(port, result.message))
            elif isinstance(result, RoutesChanged | InterestChanged):
                self._routes_changed = True
            elif isinstance(result, CostAdvertised):
                self._quieten(result.link)
                if self.settings.costs:
                    effects.append(Publish(*notices.performance(self.me, result, self.engine.wall_ns)))
            else:
                notices_.append(result)
        return effects + self._announce(notices_) if notices_ else effects

    def _announce(self, noticed: list[Notice]) -> list[Effect]:
        """Log lines about members that came or went, and events where this node is the one that publishes them."""
        found: list[Effect] = []
        first: dict[int, bool] = {}  # whether this node reports vertices of a level neither first nor withdrawn
        for notice in noticed:
            vertex_id, fields = notice.vertex_id, {"vertex": str(notice.vertex_id), "reason": notice.reason}
            if notice.kind == "refused":
                self.refused += 1
                found.append(Log("refused", "warning", fields))
                continue
            if notice.kind == "clock":
                found.append(Log("clock corrected", "warning", fields))
                continue
            found.append(Log(notice.kind, "info", fields))
            publishes = first.get(vertex_id.level)
            if publishes is None or vertex_id.path < self.me.path(vertex_id.level):
                publishes = notices.publishes(self.me, self.state, vertex_id)
                if vertex_id.path > self.me.path(vertex_id.level):
                    first[vertex_id.level] = publishes
            if publishes:
                found.append(Publish(*notices.membership(self.me, notice, self.engine.wall_ns)))
        return found

    def _new_routes(self) -> None:
        self._routes_changed = False
        self._routes_ns = self.engine.mono_ns
        self.forwarding.changed()
        self.engine.topics.forwarding_changed()
        self.reroute.retry(self.engine.mono_ns)

    def _decision(self, outputs: Outputs, kind: str, topic: bytes) -> ForwardingDecision:
        """As the engine takes it, without neighbours that may not have it: a route may name one that others trust."""
        ports = self.links.ports
        refused = self._withheld(kind, topic, lambda: [peer for peer, _ in outputs.branches])
        next_hops = [
            (ports[peer], source_route)
            for peer, source_route in outputs.branches
            if peer in ports and peer not in refused
        ]
        denied = outputs.denied + sum(peer in refused for peer, _ in outputs.branches)
        return ForwardingDecision(
            outputs.local, next_hops, outputs.hold_ns, outputs.groups, outputs.rest, outputs.back, denied,
            outputs.incapable,
        )  # fmt: skip
