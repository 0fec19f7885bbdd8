"""A node as a member of the measuring mesh: measurement, network map and routes together, without a socket or clock."""

from __future__ import annotations

from chappe.errors import ConfigError
from chappe.events.member_links import Link, Role, joining, proposal
from chappe.events.own_interest import Offered
from chappe.events.parts import MemberParts
from chappe.linkstate.expiry import Believe
from chappe.machine import Address as Source
from chappe.machine import AuditWritten, Close, Connected, Disconnected, Effect, Log, NodeInput, Send, Suspected
from chappe.measure.cost import PROFILES
from chappe.wire.base import Message
from chappe.wire.mesh import Discover, MeshJoin, Pace

LONGEST_PACE_NS = 86_400_000_000_000


class Member:
    """One member of the mesh. Ticks in which nothing is due cost next to nothing; new routes are applied once a tick.

    `Connected` follows `resume_port` of the engine, `Disconnected` follows `park_port`, or precedes `close_port` if it
    is final. The engine asks `decisions`: it is made first, with functions that call these.
    """

    def __init__(self, parts: MemberParts) -> None:
        self.me = parts.me
        self.engine = parts.engine
        self.settings = parts.settings
        self.links = parts.links
        self.measurement = parts.measurement
        self.state = parts.state
        self.subscriptions = parts.subscriptions
        self.forwarding = parts.forwarding
        self.decisions = parts.decisions
        self.reroute = parts.reroute
        self.discovery = parts.discovery
        self._rng = parts.rng
        self._results = parts.results
        self._readings = parts.readings
        self._interest = parts.interest
        self._refused = 0

    @property
    def refused(self) -> int:
        """How many messages of neighbours were not believed."""
        return self._refused + self._results.refused

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
            self._refused += 1
            return [Log("a message before MeshJoin is ignored", "warning", {"link": link.name})]
        if isinstance(message, Discover):
            return self.discovery.receive(link, message)
        return self._results.follow(self.state.receive(link.name, message, now_ns))

    # --- links

    def _connected(self, port: int, connected: Connected, now_ns: int) -> list[Effect]:
        """A link can be sent to; both ends of one between nodes send MeshJoin, others are measured alone (MR-002)."""
        kind, lossy = connected.kind, connected.lossy
        if not connected.joins:
            role: Role = "cell" if "cells" in connected.capabilities else "client"
            link = Link(port, connected.name, role, kind, lossy, since_ns=now_ns, capabilities=connected.capabilities)
            self.links.add(link)
            self.measurement.add(link, now_ns)
            return []
        effects = self._down(port, now_ns) if port in self.links.by_port else []
        link = Link(
            port, connected.name, "node", kind, lossy, connected.link or proposal(self._rng), since_ns=now_ns,
            capabilities=connected.capabilities,
        )  # fmt: skip
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
        self._readings.lost(link, now_ns)
        if not link.joined:
            return []
        self.discovery.lost(port)
        effects = self._results.follow(self.state.down(link.name, link.id, now_ns))
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
        return self._results.follow(self.state.suspect(link.id, on, now_ns))

    # --- what arrives

    def replan(self) -> None:
        """What is withheld from whom has changed: routes are planned anew with the next tick."""
        self.decisions.changed = True

    def restate(self, now_ns: int) -> list[Effect]:
        """State everything anew, as after another certificate of this node."""
        return self._results.follow(self.state.restate(now_ns))

    def revalidate(self, believed: Believe, now_ns: int) -> list[Effect]:
        """Drop what was signed by nodes that are not believed any more."""
        return self._results.follow(self.state.revalidate(believed, now_ns))

    def _join(self, link: Link, message: MeshJoin, now_ns: int) -> list[Effect]:
        if link.joined:
            self._refused += 1
            return [Log("a second MeshJoin is ignored", "warning", {"link": link.name})]
        try:
            number, address = joining(self.me, link, message, self.settings.places)
        except ConfigError as error:
            self._refused += 1
            reason = str(error)
            line = Log("neighbour refused", "error", {"link": link.name, "reason": reason})
            return [line, Close(link.port, reason, "address")]
        other = self.links.ports.get(link.name)
        effects = self._down(other, now_ns) if other is not None and other != link.port else []
        self.links.join(link, number, address)
        effects += self._results.follow(self.state.up(link.name, address, number, link.kind, now_ns))
        self.discovery.joined(link)
        self.decisions.changed = True
        return effects

    def _pace(self, port: int, message: Pace) -> list[Effect]:
        """The other end of a link says how often it wants to be probed at most (MR-072)."""
        link = self.links.by_port.get(port)
        if link is None:
            return []
        if not -1 <= message.interval_ns <= LONGEST_PACE_NS:
            self._refused += 1
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
        effects = self._readings.tick(now_ns)
        if self.discovery.advertising:
            self._interest.advertise_variables(self.discovery.advertised())
        if self._interest.due:
            effects += self._interest.tick(now_ns)
        if now_ns >= self._results.next_ns():
            effects += self._results.follow(self.state.tick(now_ns))
        if self.decisions.changed:
            self._new_routes()
        if self.discovery.due or now_ns >= self.discovery.next_ns:
            effects += self.discovery.tick(now_ns)
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
        return self.reroute.busy or self._readings.busy or self.discovery.busy

    @property
    def summarising(self) -> bool:
        """Whether `tick` should be called again soon: the interest of this node is being summarised."""
        return self.subscriptions.due

    def next_tick(self) -> int:
        """When `tick` has something to do at the latest."""
        map_ns = self._results.next_ns()
        if map_ns <= self.engine.mono_ns:  # mostly it is the map, and nothing else matters then
            return map_ns
        if (
            self.decisions.changed
            or self.busy
            or self._interest.due
            or self.discovery.due
            or self.discovery.advertising
        ):
            return 0
        return min(map_ns, self.measurement.next_ns(), self.reroute.next_ns, self.discovery.next_ns)

    # --- interest

    def subscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """A client of this node subscribed; once for each client. RefusedError if the node has too many groups."""
        self._interest.subscribed(kind, pattern, group)

    def unsubscribed(self, kind: str, pattern: str, group: str = "") -> None:
        """It does so no more; one that was not counted changes nothing."""
        self._interest.unsubscribed(kind, pattern, group)

    def advertise(self, publications: Offered) -> None:
        """What is published here, as (kind, topic or pattern), in place of what was before (MR-133).

        It is asked for in the next tick, however often this is called until then.
        """
        self._interest.advertise(publications)

    # --- costs and routes

    def reweigh(self, port: int, now_ns: int) -> list[Effect]:
        """Others have measured a link: its cost is computed anew, with what the reporter makes of it (MR-079)."""
        return self._readings.reweigh(port, now_ns)

    def _new_routes(self) -> None:
        self.decisions.apply()
        self.reroute.retry(self.engine.mono_ns)
