"""Who may come in: draining, limits, roles and identity, decided once per connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from chappe.core.sections import Limits, Listen
from chappe.errors import RefusedError
from chappe.links.handshake import accept_handshake
from chappe.links.link import Raw, control_frame
from chappe.runtime.gate import Gate
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.peers import Peers
from chappe.security.certificates import identity_of
from chappe.security.credentials import Credentials
from chappe.security.identity import Identity, dev_identity, issuer_of
from chappe.wire.control import Hello, Refused, Welcome
from chappe.wire.frames import PREAMBLE

log = structlog.get_logger(__name__)

OpenClient = Callable[[Raw, Hello, Welcome, Identity, bool], Connection]
Admit = Callable[[str | None], bool]


@dataclass(slots=True)
class _Guest:
    """What the decision about one connection found out."""

    raw: Raw
    listen: Listen
    admit: Admit | None = None
    identity: Identity | None = None


@dataclass(slots=True)
class Reception:
    """Does the handshake of accepted connections and hands them over."""

    node: str
    address: str  # of the node
    process: bytes  # number of this process, sent to whoever connects
    connections: Connections
    peers: Peers
    credentials: Credentials | None  # None: everybody is believed (--dev)
    limits: Limits
    mode: Callable[[], int]
    open_client: OpenClient
    connected: Callable[[str], int]  # how many clients of that identity there are
    restarted: Callable[[Hello, Identity, bytes], bool]  # whether a client was known by another issuer
    capabilities: tuple[str, ...] = ()  # that this node may agree on
    gate: Gate | None = None
    datagrams: bool = False
    stamps: bool = False  # whether clients are asked to stamp their events
    ready: asyncio.Event | None = None  # clients are welcome; None: at once
    draining: bool = False
    greeting: int = 0  # handshakes under way
    refused: dict[str, int] = field(default_factory=dict)  # by code

    async def accept(self, raw: Raw, listen: Listen, admit: Admit | None = None) -> None:
        """Welcome a connection, or refuse it and say why; with `admit` it is a worker of this node, if admitted."""
        full = self.draining or len(self.connections) + self.greeting >= self.limits.connections
        if full:  # before a single byte is read: this is what a flood meets
            answer = self._refuse("draining", f"{self.node} is going away") if self.draining else self._full()
            raw.write(PREAMBLE + control_frame(answer))
            raw.close()
            return
        guest = _Guest(raw, listen, admit)
        self.greeting += 1
        try:
            hello, welcome = await accept_handshake(
                raw, lambda hello: self._decide(guest, hello), self.limits.handshake_s, self.ready
            )
            assert guest.identity is not None
            if self.gate is not None and raw.meter is not None:
                kind = "node" if hello.role == "node" else "client"
                await self.gate.proven(raw.host, (kind, guest.identity.name), raw.meter)
        finally:
            self.greeting -= 1
        if hello.role == "node":
            self.peers.accepted(raw, hello, welcome, guest.identity)
        else:
            self.open_client(raw, hello, welcome, guest.identity, admit is not None)

    def _decide(self, guest: _Guest, hello: Hello) -> Welcome | Refused:
        if hello.role not in guest.listen.roles:
            return self._refuse("address", f"{guest.listen.url} is for {' and '.join(guest.listen.roles)} only")
        try:
            guest.identity = self._identify(guest.raw, hello) if guest.admit is None else _worker(guest.admit, hello)
        except RefusedError as error:
            return self._refuse("identity", str(error))
        except ValueError as error:
            return self._refuse("identity", str(error))
        if len(self.connections) >= self.limits.connections:
            return self._full()
        if guest.admit is None and self._crowded(guest.identity, hello):
            most = f"{self.limits.per_identity} connections, the most allowed (limits.per_identity)"
            return self._refuse("limit", f"{guest.identity} has {most}")
        peer = None
        issuer = issuer_of(guest.identity, hello.session) if hello.role == "client" else b""
        if hello.role == "node":
            objection = self.peers.objection(hello)
            if objection is not None:
                return objection
            peer = self.peers.named(hello.name)
        lacking = {"datagram": not self.datagrams, "stamp": not self.stamps or hello.role != "client"}
        offered = tuple(word for word in self.capabilities if not lacking.get(word))
        credited = hello.role == "client" and "credit" in hello.capabilities
        return Welcome(
            name=self.node, address=self.address, session=self.process, capabilities=offered,
            heartbeat_ns=self._heartbeat_ns(hello), max_payload=self.limits.payload, max_topics=self.limits.topics,
            credit=self.limits.credit if credited else 0, mode=self.mode(),
            resumed=peer is not None and peer.process == hello.session,
            links=self.peers.offered() if hello.role == "node" else (),
            issuer=issuer, restarted=bool(issuer) and self.restarted(hello, guest.identity, issuer),
            wall_ns=time.time_ns() if "stamp" in offered else 0,
        )  # fmt: skip

    def _heartbeat_ns(self, hello: Hello) -> int:
        least_ns = round(self.limits.heartbeat_s * 1e9) if hello.role == "client" else 50_000_000
        return min(max(hello.heartbeat_ns, least_ns), 60_000_000_000)

    def _identify(self, raw: Raw, hello: Hello) -> Identity:
        if self.credentials is None:
            return dev_identity(hello.name, "node" if hello.role == "node" else "client")
        certificate = identity_of(raw.certificate_der) if raw.certificate_der else None
        return self.credentials.identify(hello.role, hello.name, certificate, hello.token)

    def _crowded(self, identity: Identity, hello: Hello) -> bool:
        most = self.limits.per_identity
        if not most or hello.role != "client":
            return False
        again = self.connections.client(issuer_of(identity, hello.session)) is not None  # it takes the place of one
        return self.connected(identity.name) - again >= most

    def _full(self) -> Refused:
        most = f"{self.limits.connections} connections, the most allowed (limits.connections)"
        return self._refuse("limit", f"{self.node} has {most}")

    def _refuse(self, code: str, reason: str) -> Refused:
        self.refused[code] = self.refused.get(code, 0) + 1
        return Refused(code=code, reason=reason)


def _worker(admit: Admit, hello: Hello) -> Identity:
    if not admit(hello.token):
        raise RefusedError("this is for the worker of this node; its token is good once")
    return Identity(name=dev_identity(hello.name, "client").name, role="client", how="token")
