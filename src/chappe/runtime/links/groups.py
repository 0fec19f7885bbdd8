"""Multicast groups of a node (MR-027): those it sends STATUS to, and those it listens to beside a control connection.

The key of a group is handed over on the control connection of each member, and changed when a member is gone. Members
share it: one of them could speak as the sender to the others, so a group is for nodes that trust each other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from chappe.engine._engine import Engine
from chappe.errors import ChappeError
from chappe.links._datagram import DatagramSession
from chappe.links.address import Address, parse
from chappe.links.link import Security
from chappe.links.migration import LossRounds
from chappe.links.multicast import GroupEndpoint, open_receiver, open_sender
from chappe.links.registry import LinkEntry
from chappe.links.tick import FlushTick
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.peers import PeerLink
from chappe.security.identity import datagram_key
from chappe.wire.control import DatagramOpened, DatagramReport, Message

log = structlog.get_logger(__name__)

BEAT_NS = 500_000_000
REKEY_NS = 200_000_000  # for members to learn the new key before it is used
GROUPS_MAX = 16  # of one sender that a node listens to
SESSIONS_KEPT = 2  # of a group at a member: the one in use and the one before or after
SECURITY = Security(True, "SipHash-2-4-128 tags under a key of the group; not encrypted")


@dataclass(slots=True, eq=False)
class Member:
    """A node that listens to one of our groups."""

    connection: Connection
    rounds: LossRounds = field(default_factory=LossRounds)
    lost: int = 0  # datagrams that it did not get
    loss: float = 0.0  # share of the last round
    newest: int = 0
    accepted: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """One that we send to; `port` of the engine stands for all its members."""

    name: str
    address: Address
    port: int
    endpoint: GroupEndpoint
    entry: LinkEntry
    number: int
    key: bytes
    bound: DatagramSession
    members: dict[int, Member] = field(default_factory=dict)  # by the port of their connection
    next_key: tuple[int, bytes, int] | None = None  # number, key, when it is used

    def opened(self, request: int) -> DatagramOpened:
        number, key, _ = self.next_key or (self.number, self.key, 0)
        group = str(self.address).partition("?")[0]
        return DatagramOpened(id=request, port=self.address.port, link=number, key=key, group=group)


@dataclass(slots=True, eq=False)
class Heard:
    """One that we listen to, beside a control connection."""

    connection: Connection
    address: Address
    endpoint: GroupEndpoint
    port: int
    entry: LinkEntry
    sessions: dict[int, DatagramSession] = field(default_factory=dict)


class Groups:
    """All of them. `announce(port)` makes everything that is sent to a port known again."""

    def __init__(
        self, engine: Engine, connections: Connections, send: Callable[[int, Message], None],
        announce: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._connections = connections
        self._send = send
        self._announce = announce
        self._groups: dict[int, Group] = {}  # by their port
        self._heard: dict[int, dict[str, Heard]] = {}  # by the port of the connection, by group
        self._next_beat_ns = 0

    # --- as the sender

    def follow(self, peers: Iterable[PeerLink], tick: FlushTick) -> None:
        """Send to the groups among these peers; LinkError if one cannot be had."""
        for peer in peers:
            self.open(peer, tick)

    def open(self, peer: PeerLink, tick: FlushTick) -> None:
        """Send to the group of that peer from now on; LinkError if it cannot be had."""
        address = peer.group
        if address is None or peer.port in self._groups:
            return
        endpoint = open_sender(address, tick)
        number, key = secrets.randbits(32), datagram_key()
        bound = endpoint.send_as(number, self._engine, peer.port, key)
        entry = self._listed(peer.name, "node", peer.port, address, "")
        self._groups[peer.port] = Group(peer.name, address, peer.port, endpoint, entry, number, key, bound)
        self._connections.fan_out[peer.port] = self._groups[peer.port].members

    def answer(self, connection: Connection, request: int) -> bool:
        """A node asks to listen; False if there is no group."""
        for group in self._groups.values():
            group.members[connection.port] = Member(connection)
            self._send(connection.port, group.opened(request))
            self._announce(group.port)
        return bool(self._groups)

    def report(self, port: int, said: DatagramReport) -> bool:
        """A member says what it got; False if that is about something else."""
        for group in self._groups.values():
            member = group.members.get(port)
            if member is not None and said.link == group.number:
                self._count(group, member, said)
                return True
        return False

    def _count(self, group: Group, member: Member, said: DatagramReport) -> None:
        loss = member.rounds.report(said.newest, said.accepted, group.bound.last_sent)
        if loss is None:
            return
        if loss > 0.05 and member.loss <= 0.05:
            log.warning("a member loses datagrams", group=group.name, member=member.connection.session.name, loss=loss)
        member.loss = loss
        missed = (said.newest - member.newest) - (said.accepted - member.accepted)
        member.lost += max(0, missed)
        member.newest, member.accepted = said.newest, said.accepted

    def losses(self, name: str) -> dict[str, tuple[int, float]]:
        """Datagrams lost so far, and the share lost in the last round, by member of that group."""
        return {
            member.connection.session.name: (member.lost, member.loss)
            for group in self._groups.values()
            if group.name == name
            for member in group.members.values()
        }

    def _left(self, group: Group, port: int, now_ns: int) -> None:
        if group.members.pop(port, None) is None or not group.members:
            return
        group.next_key = (secrets.randbits(32), datagram_key(), now_ns + REKEY_NS)
        for other in group.members:
            self._send(other, group.opened(0))

    def _use_next_key(self, group: Group) -> None:
        assert group.next_key is not None
        old = group.number
        group.number, group.key, _ = group.next_key
        group.next_key = None
        group.endpoint.unbind(old)
        group.bound = group.endpoint.send_as(group.number, self._engine, group.port, group.key)
        for member in group.members.values():
            member.rounds, member.newest, member.accepted = LossRounds(), 0, 0

    def close(self, port: int) -> None:
        """Send no more to the group of that port, which the caller frees."""
        group = self._groups.pop(port, None)
        if group is not None:
            self._connections.fan_out.pop(port, None)
            group.endpoint.close()
            self._connections.transports.closed(group.entry, "no longer in the configuration")

    # --- as a member

    def joined(self, connection: Connection, answer: DatagramOpened, interface: str, tick: FlushTick) -> None:
        """The sender has sent us a key of its group."""
        groups = self._heard.setdefault(connection.port, {})
        heard = groups.get(answer.group)
        if heard is None:
            if len(groups) >= GROUPS_MAX:
                log.warning("too many groups", peer=connection.session.name, joined=len(groups))
                return
            try:
                heard = groups[answer.group] = self._listen(connection, answer, interface, tick)
            except ChappeError as error:
                log.warning("group not joined", peer=connection.session.name, reason=str(error))
                return
        if answer.link in heard.sessions:
            return
        heard.sessions[answer.link] = heard.endpoint.listen_to(answer.link, self._engine, heard.port, answer.key)
        while len(heard.sessions) > SESSIONS_KEPT:
            oldest = next(iter(heard.sessions))
            del heard.sessions[oldest]
            heard.endpoint.unbind(oldest)

    def _listen(self, connection: Connection, answer: DatagramOpened, interface: str, tick: FlushTick) -> Heard:
        address = group_address(answer.group, interface)
        endpoint = open_receiver(address, tick)
        port = self._engine.open_port(datagram=True, partner=connection.port)
        spare = self._engine.open_port(datagram=True, partner=connection.port)
        self._connections.free(spare)  # what we send to that node goes by the stream: the first port only hears
        entry = self._listed(connection.session.name, "node", port, address, str(address))
        log.info("group joined", group=str(address), peer=connection.session.name)
        return Heard(connection, address, endpoint, port, entry)

    # --- both

    @property
    def busy(self) -> bool:
        """Whether there is a group to send to or to hear."""
        return bool(self._groups or self._heard)

    def tick(self, now_ns: int) -> None:
        """Reports, and keys that are due."""
        for group in self._groups.values():
            if group.next_key is not None and now_ns >= group.next_key[2]:
                self._use_next_key(group)
        if now_ns < self._next_beat_ns:
            return
        self._next_beat_ns = now_ns + BEAT_NS
        for port, groups in self._heard.items():
            for heard in groups.values():
                for number, bound in heard.sessions.items():
                    report = DatagramReport(link=number, newest=bound.newest_accepted, accepted=bound.accepted)
                    self._send(port, report)

    def gone(self, port: int) -> None:
        """The control connection of that port is over."""
        for group in self._groups.values():
            self._left(group, port, self._engine.mono_ns)
        for heard in self._heard.pop(port, {}).values():
            heard.endpoint.close()
            self._connections.free(heard.port)
            self._connections.transports.closed(heard.entry, "its control connection is over")

    def stop(self) -> None:
        """End all sockets."""
        for port in list(self._heard):
            self.gone(port)
        for port in list(self._groups):
            self.close(port)

    def _listed(self, peer: str, role: str, port: int, address: Address, local: str) -> LinkEntry:
        return self._connections.transports.opened(
            uri=str(address), kind="multicast", peer=peer, role=role, port=port, local=local, remote=str(address),
            security=SECURITY, wall_ns=time.time_ns(), data=("status",), alternate=True,
        )  # fmt: skip


def group_address(text: str, interface: str) -> Address:
    """The group that a sender named, heard on that interface of ours; ConfigError if it is none."""
    address = parse(text, ("udp+multicast",))
    return Address(address.scheme, address.host, address.port, options=(("interface", interface),) * bool(interface))
