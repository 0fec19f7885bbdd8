"""A node as a member of the measuring mesh: measurement, network map and routes together, without a socket or clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from chappe.engine._engine import Engine
from chappe.engine.rescue import RawOutputs
from chappe.errors import ConfigError
from chappe.events import notices
from chappe.events.forwarding import ForwardingTable, Outputs
from chappe.events.interest import Subscriptions
from chappe.events.member_links import Link, Links, joining, misplaced, proposal
from chappe.events.member_measure import Measurement
from chappe.events.member_outputs import Log as Log
from chappe.events.member_outputs import Measured as Measured
from chappe.events.member_outputs import MemberSettings as MemberSettings
from chappe.events.member_outputs import Output as Output
from chappe.events.member_outputs import Publish as Publish
from chappe.events.member_outputs import Refuse as Refuse
from chappe.events.member_outputs import Send as Send
from chappe.events.reroute import Reroute
from chappe.linkstate import outputs as linkstate
from chappe.linkstate.database import Advert
from chappe.linkstate.network_map import Believe, LinkState, Sign, Verify
from chappe.linkstate.units import Address
from chappe.measure.cost import PROFILES, Metrics
from chappe.measure.readings import Reading
from chappe.wire.addresses import KIND
from chappe.wire.base import Message
from chappe.wire.mesh import MESH, MeshJoin, Pace, decode_advert
from chappe.wire.patterns import Pattern

Offered = Callable[[], Iterable[tuple[str, str]]]  # (kind, topic or pattern) of publications
Weigh = Callable[[Link, Metrics | None], Metrics | None]  # what this node measured, with what others have

Withheld = Callable[[str, bytes, Callable[[], Iterable[str]]], frozenset[str]]
"""Nodes among these that rules deny the events of a topic (kind, topic); they are asked for if there is such a rule."""

FAR_NS = 1 << 62
ASK = -1
LONGEST_PACE_NS = 86_400_000_000_000
NOWHERE, HERE = Outputs(False), Outputs(True)
READ_AT_ONCE = 20  # readings in one tick: each may be told to every neighbour


def _no_rules(kind: str, topic: bytes, names: Callable[[], Iterable[str]]) -> frozenset[str]:
    return frozenset()


class Member:
    """One member of the mesh. Ticks in which nothing is due cost next to nothing; new routes are applied once a tick.

    The engine asks `publish_way` and `forward_way`; give it functions that call these, since it is made first. `up`
    after `resume_port` and `down` after `park_port` of the engine.
    """

    def __init__(
        self, me: Address, engine: Engine, settings: MemberSettings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None,
        decode: Callable[[bytes], Advert] = decode_advert,
    ) -> None:  # fmt: skip
        self.me = me
        self.engine = engine
        self.settings = settings
        self.links = Links()
        self.measurement = Measurement(engine, settings, rng)
        self.state = LinkState(
            me, settings.map, rng, sign, verify, self._latest, lambda: engine.wall_ns, self._misplaced, decode
        )
        self.mine = Subscriptions()
        profiles = [(Pattern("s", text), name) for text, name in settings.profiles]
        needs = [(Pattern("s", text), words) for text, words in settings.needs]
        self.withheld: Withheld = _no_rules
        self.forwarding = ForwardingTable(
            me, self.state, self.mine, settings.profile, profiles, self.links.ports.__contains__, needs,
            lambda kind, topic: self.withheld(kind, topic, self.state.members),
        )  # fmt: skip
        self.rescue = Reroute(
            engine, self.forwarding, self._raw, settings.undeliverable_ns, settings.undeliverable_bytes, settings.slice
        )
        self.refused = 0  # messages of neighbours that were not believed
        self._rng = rng
        self._publications: tuple[Pattern, ...] = ()
        self._readings: deque[Reading] = deque()  # that the map was not told yet
        self._interest_changed = False
        self._offered: Offered | None = None  # publications that are not advertised yet
        self._notice_due = False
        self._routes_changed = False
        self._routes_ns = 0  # when routes were last changed
        self.weigh: Weigh | None = None
        self._state_ns = FAR_NS  # when the map has something to do; ASK: it is to be asked
        if settings.mesh:
            self._state_ns = ASK

    # --- links

    def up(
        self, port: int, name: str, now_ns: int, *, kind: str = "tcp", lossy: bool = False, id: bytes = b""
    ) -> list[Output]:
        """A link to another node can be sent to; both ends say MeshJoin on it. `id`: the UUID that this end gave it."""
        outputs = self.down(port, now_ns) if port in self.links.by_port else []
        link = Link(port, name, "node", kind, lossy, id or proposal(self._rng), since_ns=now_ns)
        self.links.add(link)
        self.measurement.add(link, now_ns)
        self.rescue.returned(port)
        if not self.settings.mesh:
            return outputs
        unit = "/".join(self.me.unit)
        join = MeshJoin(name=self.me.node, unit=unit, link=link.proposed, kind=kind, profiles=tuple(sorted(PROFILES)))
        return [*outputs, Send(port, join)]

    def down(self, port: int, now_ns: int) -> list[Output]:
        """A link to another node is gone: what its other end had not confirmed takes other routes."""
        link = self.links.remove(port)
        if link is None:
            return []
        self.measurement.remove(port)
        if not link.joined:
            return []
        outputs = self._obey(self.state.down(link.name, link.id, now_ns))
        self._new_ways()
        self.rescue.begin(port, link.name)
        self.rescue.work(now_ns)
        return outputs

    def removed(self, port: int, now_ns: int) -> list[Output]:
        """Its port is about to be closed for good: all that it holds takes other routes now. Call it before."""
        outputs = self.down(port, now_ns)
        self.rescue.finish(port, now_ns)
        return outputs

    def suspect(self, port: int, on: bool, now_ns: int) -> list[Output]:
        """The other end was silent for longer than it should, or is heard again (MR-021)."""
        link = self.links.by_port.get(port)
        if link is None or not link.joined or link.suspect is on:
            return []
        link.suspect = on
        return self._obey(self.state.suspect(link.id, on, now_ns))

    def attend(self, port: int, name: str, now_ns: int, *, kind: str = "tcp", lossy: bool = False) -> None:
        """Measure a link to a client, too (MR-002)."""
        link = Link(port, name, "client", kind, lossy, since_ns=now_ns)
        self.links.add(link)
        self.measurement.add(link, now_ns)

    def leave(self, port: int) -> None:
        """Measure it no more."""
        if self.links.remove(port) is not None:
            self.measurement.remove(port)

    # --- what arrives

    @staticmethod
    def takes(message: Message) -> bool:
        """Whether messages of this kind are for the member."""
        return isinstance(message, MESH)

    def receive(self, port: int, message: Message, now_ns: int) -> list[Output]:
        """A control message of a neighbour."""
        link = self.links.by_port.get(port)
        if link is None or link.role != "node" or not self.settings.mesh:
            return []
        if isinstance(message, MeshJoin):
            return self._join(link, message, now_ns)
        if isinstance(message, Pace):
            return self.paced(port, message)
        if not link.joined:
            self.refused += 1
            return [Log("a message before MeshJoin is ignored", "warning", {"link": link.name})]
        return self._obey(self.state.receive(link.name, message, now_ns))

    def _misplaced(self, advert: Advert) -> str:
        return misplaced(self.settings.places, advert.originator, advert.origin if advert.level else advert.scope)

    def other_ways(self) -> None:
        """What is withheld from whom has changed: routes are planned anew with the next tick."""
        self._routes_changed = True

    def restate(self, now_ns: int) -> list[Output]:
        """State everything anew, as after another certificate of this node."""
        return self._obey(self.state.restate(now_ns))

    def revalidate(self, believed: Believe, now_ns: int) -> list[Output]:
        """Drop what was signed by nodes that are not believed any more."""
        return self._obey(self.state.revalidate(believed, now_ns))

    def _join(self, link: Link, message: MeshJoin, now_ns: int) -> list[Output]:
        if link.joined:
            self.refused += 1
            return [Log("a second MeshJoin is ignored", "warning", {"link": link.name})]
        try:
            number, address = joining(self.me, link, message, self.settings.places)
        except ConfigError as error:
            self.refused += 1
            return [Refuse(link.port, str(error))]
        other = self.links.ports.get(link.name)
        outputs = self.down(other, now_ns) if other is not None and other != link.port else []
        self.links.join(link, number, address)
        outputs += self._obey(self.state.up(link.name, address, number, link.kind, now_ns))
        self._routes_changed = True
        return outputs

    def paced(self, port: int, message: Pace) -> list[Output]:
        """The other end of a link says how often it wants to be probed at most (MR-072)."""
        link = self.links.by_port.get(port)
        if link is None:
            return []
        if not -1 <= message.interval_ns <= LONGEST_PACE_NS:
            self.refused += 1
            reason = f"an interval of {message.interval_ns} ns; give one up to a day, 0 for never or -1 for any"
            return [Log("a wish to be probed is ignored", "warning", {"link": link.name, "reason": reason})]
        self.measurement.initiator.asked(port, None if message.interval_ns < 0 else message.interval_ns)
        return [Log("the other end chose how often it is probed", "info",
                    {"link": link.name, "interval_ns": message.interval_ns})]  # fmt: skip

    def arrived(self, now_ns: int) -> list[Output]:
        """Take the echoes and train reports that the engine got, and the events for which there was no route."""
        self.measurement.arrived(now_ns)
        self.rescue.arrived(now_ns)
        return []

    def tick(self, now_ns: int) -> list[Output]:
        """Tell costs, refresh and forget, apply new routes; then `probe`."""
        outputs: list[Output] = []
        if now_ns >= self.measurement.initiator.next_ns():
            readings = self.measurement.tick(self.links, now_ns)
            if not self.settings.readings:  # of a link to a client nobody is told then
                links = self.links.by_port
                readings = [reading for reading in readings if (link := links.get(reading.link)) and link.joined]
            self._readings += readings
        for _ in range(min(READ_AT_ONCE, len(self._readings))):
            outputs += self._read(self._readings.popleft(), now_ns)
        if self.mine.due:
            self._interest_changed = self.mine.work() or self._interest_changed
        if self._notice_due:  # in a tick of its own: thousands of publications take a millisecond each time
            self._notice_due = False
            outputs.append(Publish(*notices.publications(self.me, self._publications, self.engine.wall_ns)))
        elif self._interest_changed:
            self._interest_changed = False
            if self._offered is not None:
                self._publications = tuple(Pattern(kind, text) for kind, text in self._offered())
                self._offered, self._notice_due = None, True
            outputs += self._obey(self.state.want(self.mine.patterns(), self._publications, now_ns))
            self._routes_changed = True
        if now_ns >= self._map_ns():
            outputs += self._obey(self.state.tick(now_ns))
        if self._routes_changed:
            self._new_ways()
        if now_ns >= self.rescue.next_ns:
            self.rescue.again(now_ns)
        if self.rescue.busy:
            self.rescue.work(now_ns)
        if self.rescue.waiting:
            self.rescue.expire(now_ns)
        return outputs

    def probe(self, now_ns: int) -> bool:
        """Queue the probes that are due; whether there is any. Apart from `tick`, so that they leave at the time that
        counts as theirs and do not wait for what else is to be done."""
        return now_ns >= self.measurement.next_ns() and self.measurement.probe(now_ns)

    @property
    def busy(self) -> bool:
        """Whether `tick` should be called again at once: it works in slices, so that nobody waits for it."""
        return self.rescue.busy or bool(self._readings)

    @property
    def summarising(self) -> bool:
        """Whether `tick` should be called again soon: what is wanted here is being summarised."""
        return self.mine.due

    def next_ns(self) -> int:
        """When `tick` has something to do at the latest."""
        if self._interest_changed or self._notice_due or self._routes_changed or self.busy or self.mine.due:
            return 0
        return min(self.measurement.next_ns(), self._map_ns(), self.rescue.next_ns)

    def _map_ns(self) -> int:
        if self._state_ns == ASK:
            self._state_ns = self.state.next_ns()
        return self._state_ns

    # --- interest

    def subscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """A client of this node subscribed; once for each client. RefusedError if the node has too many groups."""
        stamp = self.mine.stamp
        told = self.mine.add(kind, pattern, group)
        self._interest_changed = self._interest_changed or told
        self._routes_changed = self._routes_changed or stamp != self.mine.stamp

    def unsubscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """It does so no more; one that was not counted changes nothing."""
        stamp = self.mine.stamp
        try:
            told = self.mine.remove(kind, pattern, group)
        except KeyError:
            return
        self._interest_changed = self._interest_changed or told
        self._routes_changed = self._routes_changed or stamp != self.mine.stamp

    def advertise(self, publications: Offered) -> None:
        """What is published here, as (kind, topic or pattern), in place of what was before (MR-133).

        It is asked for in the next tick, however often this is called until then.
        """
        self._offered = publications
        self._interest_changed = True

    # --- asked by the engine

    def publish_way(self, kind: str, topic: bytes) -> RawOutputs:
        """Where events of clients of this node go."""
        outputs = self.forwarding.publish(kind, topic)
        if kind == KIND and outputs == NOWHERE and self.engine.topics.match(topic.decode(), kind)[0]:
            outputs = HERE  # a neighbour that is in no mesh
        # The engine asks at the first event after a change: older ones left before it, and are that much ahead.
        ahead_ns = self.engine.mono_ns - self._routes_ns
        if outputs.hold_ns:
            outputs = replace(outputs, hold_ns=max(0, outputs.hold_ns - ahead_ns))
        return self._raw(outputs, kind, topic)

    def forward_way(self, port: int, source_route: bytes, kind: str, topic: bytes) -> RawOutputs:
        """Where events that came with that route go."""
        link = self.links.by_port.get(port)
        return self._raw(
            self.forwarding.forward(link.name if link is not None else "", source_route, kind, topic), kind, topic
        )

    # --- switches

    def performance(self, on: bool, now_ns: int) -> list[Output]:
        """Route by measured costs, or by static ones (MR-117)."""
        return self._obey(self.state.perform(on, now_ns))

    def advised(self, port: int, now_ns: int) -> list[Output]:
        """Others have measured a link: its cost is computed anew, with what `weigh` makes of it (MR-079)."""
        link = self.links.by_port.get(port)
        if link is None or not link.joined or self.weigh is None:
            return []
        own = self.measurement.initiator.reading(port)
        metrics = self.weigh(link, own.metrics if own is not None else None)
        return [] if metrics is None else self._obey(self.state.measured(link.id, metrics, now_ns))

    # --- what follows from it

    def _read(self, reading: Reading, now_ns: int) -> list[Output]:
        link = self.links.by_port.get(reading.link)
        if link is None:
            return []
        told: list[Output] = []
        metrics = reading.metrics if self.weigh is None else self.weigh(link, reading.metrics)
        if link.joined and metrics is not None:
            # a level that changed is told at once; else what few or noisy samples say is not taken for a change
            samples = 0 if reading.restarted else reading.window - reading.outliers
            told = self._obey(self.state.measured(link.id, metrics, now_ns, samples))
        if self.settings.readings:
            told.append(Measured(link.port, reading, bool(told)))
        return told

    def _quieten(self, id: bytes) -> None:
        """Others were told what that link costs: nobody needs a reading of it until it costs something else."""
        link = self.links.by_id.get(id)
        if link is not None and self.weigh is None and not self.settings.readings:
            self.measurement.initiator.quiet(link.port, *self.state.advertised(id))

    def _latest(self, id: bytes) -> Metrics | None:
        """What is known of an own link now."""
        link = self.links.by_id.get(id)
        own = self.measurement.initiator.reading(link.port) if link is not None else None
        if link is None or own is None:
            return None
        return own.metrics if self.weigh is None else self.weigh(link, own.metrics)

    def _obey(self, asked: Iterable[linkstate.Output]) -> list[Output]:
        """What the network map wants, with neighbours as ports and facts as events."""
        found: list[Output] = []
        noticed: list[linkstate.Notice] = []
        self._state_ns = ASK
        for output in asked:
            match output:
                case linkstate.Send(peer, message):
                    port = self.links.ports.get(peer)
                    if port is not None:
                        found.append(Send(port, message))
                case linkstate.RoutesChanged() | linkstate.InterestChanged():
                    self._routes_changed = True
                case linkstate.CostAdvertised():
                    self._quieten(output.link)
                    if self.settings.costs:
                        found.append(Publish(*notices.performance(self.me, output, self.engine.wall_ns)))
                case linkstate.Notice():
                    noticed.append(output)
        return found + self._noticed(noticed) if noticed else found

    def _noticed(self, told: list[linkstate.Notice]) -> list[Output]:
        found: list[Output] = []
        first: dict[
            int, bool
        ] = {}  # whether this node reports vertices of a level that are neither first nor withdrawn
        for notice in told:
            vertex_id, fields = notice.vertex_id, {"thing": str(notice.vertex_id), "reason": notice.reason}
            if notice.kind == "refused":
                self.refused += 1
                found.append(Log("refused", "warning", fields))
                continue
            if notice.kind == "clock":
                found.append(Log("clock corrected", "warning", fields))
                continue
            found.append(Log(notice.kind, "info", fields))
            speaks = first.get(vertex_id.level)
            if speaks is None or vertex_id.path < self.me.path(vertex_id.level):
                speaks = notices.speaks(self.me, self.state, vertex_id)
                if vertex_id.path > self.me.path(vertex_id.level):
                    first[vertex_id.level] = speaks
            if speaks:
                found.append(Publish(*notices.membership(self.me, notice, self.engine.wall_ns)))
        return found

    def _new_ways(self) -> None:
        self._routes_changed = False
        self._routes_ns = self.engine.mono_ns
        self.forwarding.changed()
        self.engine.topics.new_ways()
        self.rescue.retry(self.engine.mono_ns)

    def _raw(self, outputs: Outputs, kind: str, topic: bytes) -> RawOutputs:
        """As the engine takes it, without neighbours that may not have it: a route may name one that others trust."""
        ports = self.links.ports
        refused = self.withheld(kind, topic, lambda: [peer for peer, _ in outputs.branches])
        branches = [
            (ports[peer], source_route)
            for peer, source_route in outputs.branches
            if peer in ports and peer not in refused
        ]
        denied = outputs.denied + sum(peer in refused for peer, _ in outputs.branches)
        return (
            outputs.local, branches, outputs.hold_ns, outputs.groups, outputs.rest, outputs.back, denied,
            outputs.incapable,
        )  # fmt: skip
