"""Links to other nodes: one port a peer, kept while its connection comes and goes (GS-035)."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from chappe.core.peer_ports import PeerPorts
from chappe.core.sections import Peer, TopicRoute
from chappe.engine._engine import Engine
from chappe.errors import ChappeError, RefusedError
from chappe.links.address import Address, parse
from chappe.links.backoff import Backoff
from chappe.links.handshake import connect_handshake
from chappe.links.kinds import factory_of, stream_schemes
from chappe.links.link import Raw
from chappe.links.negotiation import Capabilities, Choice, read
from chappe.machine import Dial
from chappe.runtime.links.connections import Connection
from chappe.runtime.links.reaching import Reaching
from chappe.security.certificates import identity_of
from chappe.security.identity import Identity, dev_identity
from chappe.security.tls import expect
from chappe.wire.control import Hello, Refused, Welcome

log = structlog.get_logger(__name__)

MULTICAST = "udp+multicast"
CELL_RECONNECT_S = 30.0  # at most between two attempts to reach a cell


@dataclass(slots=True, eq=False)
class PeerLink:
    """A peer and the port that its connections carry, one after the other."""

    config: Peer
    port: int
    listed: bool  # in the configuration, else it came by itself
    connection: Connection | None = None
    process: bytes = b""  # number of the peer's process when it was last connected
    parked_ns: int = 0
    dialler: asyncio.Task[None] | None = None
    problem: str = ""  # why the last attempt failed
    manager: bool = False  # a process of the broker's role: no channel
    theirs: Capabilities | None = None  # what it said that it can be reached by
    moving: asyncio.Event | None = None  # set when a link that is being opened in place of the connection has settled
    choice: str = ""  # why its connection is the one it is
    cell: bool = False  # dialled because cells want it, and no file lists it

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def group(self) -> Address | None:
        """The multicast group that it stands for, if it is no node."""
        return group_of(self.config)

    @property
    def url(self) -> str:
        return ", ".join(self.config.urls)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the handshake with another node has come to."""

    process: bytes  # number of the other one's process
    heartbeat_ns: int
    capabilities: tuple[str, ...]  # that both have
    dialled: bool
    joins: bool = True  # False: the link is for cells alone


def agreed(config: Peer, welcome: Welcome, joins: bool = True) -> Agreement:
    """With a peer that was dialled."""
    heartbeat_ns = max(round(config.heartbeat_s * 1e9), welcome.heartbeat_ns)
    return Agreement(welcome.session, heartbeat_ns, welcome.capabilities, True, joins)


Carry = Callable[[PeerLink, Raw, Identity, Agreement], Connection]


class Peers:
    """All peers by name. `carry(peer, raw, identity, agreement)` attaches a connection."""

    def __init__(
        self,
        node: str,
        process: bytes,
        engine: Engine,
        ports: PeerPorts,
        carry: Carry,
        client_tls: Callable[[], ssl.SSLContext],
        certificates: bool,
        capabilities: tuple[str, ...],
        offered: Callable[[], tuple[str, ...]],
    ) -> None:
        """`certificates`: there is one to show to encrypted addresses; `offered()`: what others reach this node by."""
        self._capabilities = capabilities
        self._node = node
        self._process = process
        self._certificates = certificates
        self._engine = engine
        self._ports = ports
        self.carry = carry
        self.reaching = Reaching(client_tls, lambda: certificates)
        self.offered = offered
        self._by_name: dict[str, PeerLink] = {}

    def __iter__(self) -> Iterator[PeerLink]:
        return iter(list(self._by_name.values()))

    def port(self, name: str) -> int | None:
        """The port of a peer, connected or not."""
        peer = self._by_name.get(name)
        return None if peer is None else peer.port

    def named(self, name: str) -> PeerLink | None:
        return self._by_name.get(name)

    def configure(self, peers: Sequence[Peer], routes: Sequence[TopicRoute]) -> list[PeerLink]:
        """Follow the configuration, at the start and after a reload; the peers that are in it no more."""
        wanted = {peer.name: peer for peer in peers}
        removed = [peer for peer in self if peer.listed and not peer.manager and peer.name not in wanted]
        for config in wanted.values():
            peer = self._by_name.get(config.name)
            if peer is None:
                self._open(config, listed=True)
            else:
                if (config.url != peer.config.url or peer.cell) and peer.dialler is not None:
                    peer.dialler.cancel()
                    peer.dialler = None
                peer.cell = False
                if config.level != peer.config.level:
                    self._engine.status.set_level(peer.port, config.level)
                peer.config, peer.listed = config, True
        for peer in self:
            if peer not in removed and peer.group is None:
                self._ports.route(peer.name, [route.pattern for route in routes if peer.name in route.to])
        return removed

    def start(self) -> None:
        """Dial every peer that has a url and is not being dialled."""
        for peer in self:
            if peer.config.urls and peer.group is None and peer.listed and not peer.manager and peer.dialler is None:
                peer.dialler = asyncio.get_running_loop().create_task(self._keep(peer), name=f"dial {peer.name}")

    async def stop(self) -> None:
        """Dial no more."""
        tasks = [peer.dialler for peer in self if peer.dialler is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def objection(self, hello: Hello) -> Refused | None:
        """Why a node that connects is not taken, or None.

        Where both sides dial, the connection of the one whose name is first in the alphabet stays.
        """
        if hello.name == self._node:
            return Refused(reason=f"{hello.name!r} is this node's name; give each node its own", code="address")
        peer = self._by_name.get(hello.name)
        if peer is None or peer.connection is None:
            return None
        ours = peer.connection
        better = ours.joins > hello.joins  # than one for cells alone
        if (better or (ours.joins == hello.joins and ours.dialled and self._node < peer.name)) and (
            peer.process == hello.session
        ):
            return Refused(reason=f"{self._node} has a connection to {peer.name} already", code="address")
        return None

    def accepted(self, raw: Raw, hello: Hello, welcome: Welcome, identity: Identity) -> Connection:
        """A node has connected."""
        peer = self._by_name.get(hello.name) or self._open(Peer(name=hello.name), listed=False)
        peer.theirs = read(hello.name, hello.links, raw.peer.host)
        heartbeat_ns = max(hello.heartbeat_ns, 50_000_000)
        return self.carry(peer, raw, identity, Agreement(
            hello.session, heartbeat_ns, welcome.capabilities, False, hello.joins
        ))  # fmt: skip

    def manager(self, name: str, url: str) -> PeerLink:
        """The link to a broker's process of that name; RefusedError if the name is that of another peer."""
        peer = self._by_name.get(name)
        if peer is None:
            peer = self._open(Peer(name=name, url=url), listed=True)
            peer.manager = True
        if not peer.manager or name == self._node:
            raise RefusedError(f"{url} is {name!r}, which is a peer of {self._node}; a broker needs a name of its own")
        return peer

    # --- links that cells want

    def keep(self, wanted: Dial) -> None:
        """Dial a node that no file lists, until `leave`; urls that are not for this node are left out."""
        peer = self._by_name.get(wanted.name)
        if wanted.name == self._node or (peer is not None and (peer.listed or peer.manager)):
            return
        urls = tuple(url for url in wanted.urls if self._permits(url))
        config = Peer(name=wanted.name, url=urls, reconnect_max_s=CELL_RECONNECT_S)
        if peer is None:
            peer = self._open(config, listed=False)
        if peer.dialler is not None:
            if peer.config.urls == urls:
                return
            peer.dialler.cancel()
        peer.config, peer.cell = config, True
        peer.dialler = None
        if urls:
            peer.dialler = asyncio.get_running_loop().create_task(self._keep(peer), name=f"dial {peer.name}")

    def leave(self, name: str) -> Connection | None:
        """Dial it no more, unless a file lists it; the connection that was dialled, to be closed by the caller."""
        peer = self._by_name.get(name)
        if peer is None or not peer.cell:
            return None
        peer.cell = False
        if peer.dialler is not None:
            peer.dialler.cancel()
            peer.dialler = None
        connection = peer.connection
        return connection if connection is not None and connection.dialled and not connection.joins else None

    def _permits(self, url: str) -> bool:
        """Others say where they are: what a file may not name is not dialled for them either."""
        try:
            address = parse(url, stream_schemes())
        except ChappeError:
            return False
        return address.is_loopback or (factory_of(address).secure and self._certificates)

    def _joins(self, name: str) -> bool:
        """Whether a connection to that node is one of the mesh."""
        peer = self._by_name.get(name)
        return peer is None or not peer.cell or (peer.connection is not None and peer.connection.joins)

    def by_datagrams(self, peer: PeerLink, raw: Raw) -> bool:
        """Whether STATUS for that peer should go by datagrams beside this connection."""
        return self.reaching.datagrams(peer.config, peer.theirs, raw.peer.is_loopback)

    def channels(self) -> list[str]:
        """Names of the nodes that are connected now, brokers left out."""
        return [peer.name for peer in self if peer.connection is not None and not peer.manager]

    async def dial(self, config: Peer) -> tuple[Raw, Welcome, Choice]:
        """A connection whose handshake is done, by the best of the links that lead there; the error of the best."""
        problem: Exception | None = None
        for choice in await self.reaching.choices(config):
            try:
                raw, welcome = await self.open(config, choice)
            except (ChappeError, OSError) as error:
                problem = problem or error
            else:
                return raw, welcome, choice
        assert problem is not None
        raise problem

    async def open(self, config: Peer, choice: Choice) -> tuple[Raw, Welcome]:
        """A connection by that link, its handshake done."""
        raw = await self.reaching.dial(config, choice)
        hello = Hello(
            role="node", name=self._node, session=self._process, capabilities=self._capabilities,
            heartbeat_ns=round(config.heartbeat_s * 1e9), links=self.offered(), joins=self._joins(config.name),
        )  # fmt: skip
        return raw, await connect_handshake(raw, hello)

    def remove(self, peer: PeerLink) -> None:
        """Forget a peer; its port is freed by the caller."""
        if peer.dialler is not None:
            peer.dialler.cancel()
        self._by_name.pop(peer.name, None)
        self._ports.remove(peer.name)

    def _open(self, config: Peer, listed: bool) -> PeerLink:
        port = self._ports.open(config, group=group_of(config) is not None)
        peer = self._by_name[config.name] = PeerLink(config, port, listed, parked_ns=self._engine.mono_ns)
        if not listed and peer.group is None:
            self._ports.route(peer.name, ())
        return peer

    async def _keep(self, peer: PeerLink) -> None:
        """Keep a connection to a peer for ever."""
        config = peer.config
        backoff = Backoff(random.random, base_s=config.reconnect_min_s, cap_s=config.reconnect_max_s)
        while True:
            if peer.connection is not None and self._content(peer, peer.connection):
                await peer.connection.lost.wait()
                continue
            await asyncio.sleep(backoff.next_s())
            try:
                connection: Connection | None = await self._dial(peer)
            except (ChappeError, OSError) as error:
                if str(error) != peer.problem:
                    peer.problem = str(error)
                    log.warning("peer not reached", peer=peer.name, url=peer.url, reason=peer.problem)
                continue
            peer.problem = ""
            backoff.reset()
            while connection is not None:
                await connection.lost.wait()
                if peer.moving is not None:
                    await peer.moving.wait()
                following = peer.connection  # another link that was dialled has taken its place
                connection = following if following is not None and following.dialled else None

    def _content(self, peer: PeerLink, connection: Connection) -> bool:
        """Whether there is no need to dial: the other end did, and its connection is the one that stays."""
        if peer.cell:
            return True
        return connection.joins and not (connection.dialled or self._node < peer.name)

    async def _dial(self, peer: PeerLink) -> Connection:
        raw, welcome, choice = await self.dial(peer.config)
        return self.carry_dialled(peer, raw, welcome, choice)

    def carry_dialled(self, peer: PeerLink, raw: Raw, welcome: Welcome, choice: Choice) -> Connection:
        """Use a connection that was dialled for the port of a peer; RefusedError if it is not that peer's."""
        config = peer.config
        try:
            identity = self._identify(peer, raw, welcome)
            joins, present = self._joins(peer.name), peer.connection
            if present is not None and present.joins >= joins and not present.dialled and self._node > peer.name:
                raise RefusedError(f"{peer.name} has connected by itself meanwhile")
            peer.theirs = read(welcome.name, welcome.links, raw.peer.host)
        except BaseException:
            raw.close()
            raise
        peer.choice = f"{choice.kind}: {choice.reason}"
        return self.carry(peer, raw, identity, agreed(config, welcome, joins))

    def _identify(self, peer: PeerLink, raw: Raw, welcome: Welcome) -> Identity:
        if welcome.name != peer.name:
            raise RefusedError(f"{raw.peer} is node {welcome.name!r}, not {peer.name!r}; correct its name or its url")
        if raw.certificate_der is None:
            return dev_identity(welcome.name, "node")
        return expect(identity_of(raw.certificate_der), "node", peer.name)


def group_of(config: Peer) -> Address | None:
    """The multicast group that a `[[peer]]` stands for; None if it is a node."""
    grouped = [url for url in config.urls if url.startswith(f"{MULTICAST}://")]
    return parse(grouped[0]) if grouped else None
