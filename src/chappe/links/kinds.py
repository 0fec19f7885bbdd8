"""The transports of this process, one factory each; `register` adds another, and nothing else has to change."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from chappe.errors import ConfigError, LinkError
from chappe.links.address import Address, define, schemes, undefine
from chappe.links.factory import Dialling, Factory, Listening, Traits, check_context, check_proxy, no_stream
from chappe.links.link import Accepted, Raw
from chappe.links.listener import Finished, Listener, bind
from chappe.links.parallel import Parallel
from chappe.links.plain import PlainRaw
from chappe.links.reach import reach
from chappe.links.transported import TransportRaw, connected
from chappe.links.transported import accepted as accepted_transport


@dataclass(frozen=True, slots=True)
class Plain(Traits):
    """TCP and Unix sockets, read and written by compiled code (MR-023, MR-024)."""

    def takes(self, address: Address) -> bool:
        return address.scheme == self.kind and not address.option("parallel")

    async def connect(self, address: Address, how: Dialling) -> Raw:
        check_context(address, False, how.tls)
        check_proxy(address, how)
        sock, rest = await reach(address, how)
        raw = PlainRaw(sock, address, how.options)
        raw.unread(rest)
        return raw

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        check_context(address, False, how.tls)

        async def opener(sock: socket.socket, peer: Address, finished: Finished) -> Raw:
            return PlainRaw(sock, peer, how.options, finished)

        return await bind(address, opener, accepted, how.options)


@dataclass(frozen=True, slots=True)
class Transported(Traits):
    """TLS, and WebSocket over TCP or TLS (MR-028, MR-029)."""

    web: bool = False

    def takes(self, address: Address) -> bool:
        return address.scheme == self.kind and not address.option("parallel")

    async def connect(self, address: Address, how: Dialling) -> Raw:
        check_context(address, self.encrypts, how.tls)
        check_proxy(address, how)
        sock, rest = await reach(address, how)
        if rest:
            sock.close()
            raise LinkError(f"{address}: proxy {how.proxy} sent bytes before it was asked for any")
        raw = TransportRaw(await connected(sock, address, how.tls, how.server_name or address.host), address)
        if self.web:
            from chappe.links.websocket import request_upgrade  # HTTP, which most connections do without

            await request_upgrade(raw, address, how.options.handshake_timeout_s)
        return raw

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        check_context(address, self.encrypts, how.tls)
        timeout_s = how.options.handshake_timeout_s
        if self.web:
            from chappe.links import websocket  # now: later it would take 8 ms of a loop that forwards

        async def opener(sock: socket.socket, peer: Address, finished: Finished) -> Raw:
            raw = TransportRaw(await accepted_transport(sock, how.tls, timeout_s), peer, finished)
            if self.web:
                try:
                    await websocket.accept_upgrade(raw, address, timeout_s)
                except BaseException:
                    raw.close()
                    raise
            return raw

        return await bind(address, opener, accepted, how.options)


@dataclass(frozen=True, slots=True)
class Datagrams(Traits):
    """UDP beside a stream that handed over its key (MR-025, MR-027), for one or for a group: never dialled alone."""

    secure: bool = True  # authentic, not secret
    stream: bool = False
    scheme: str = "udp"

    def takes(self, address: Address) -> bool:
        return address.scheme == self.scheme

    async def connect(self, address: Address, how: Dialling) -> Raw:
        raise no_stream(address, "connect by")

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        raise no_stream(address, "listen on")


_STREAMS = frozenset({"tcp", "tls", "unix", "ws", "wss", "parallel", "parallel-tls"})
_factories: dict[str, Factory] = {
    factory.kind: factory
    for factory in (
        Plain("unix", {"control": 0, "status": 1, "bulk": 0}, _STREAMS, secure=True),
        Plain("tcp", {"control": 1, "status": 2, "bulk": 2}, _STREAMS),
        Transported("tls", {"control": 2, "status": 3, "bulk": 3}, _STREAMS, secure=True, encrypts=True),
        Transported("ws", {"control": 3, "status": 5, "bulk": 5}, _STREAMS, web=True),
        Transported("wss", {"control": 4, "status": 6, "bulk": 6}, _STREAMS, secure=True, encrypts=True, web=True),
        Parallel("parallel", {"control": 5, "status": 7, "bulk": 1}, _STREAMS),
        Parallel(
            "parallel-tls", {"control": 6, "status": 8, "bulk": 2}, _STREAMS, secure=True, encrypts=True, scheme="tls"
        ),
        Datagrams("udp", {"status": 0}, _STREAMS),
        Datagrams("multicast", {"status": 9}, frozenset({"udp"} | _STREAMS), scheme="udp+multicast"),
    )
}


def register(factory: Factory) -> None:
    """Make a transport known; ConfigError if its kind exists. Addresses of its schemes work everywhere from then on."""
    if factory.kind in _factories:
        raise ConfigError(f"a transport of kind {factory.kind!r} exists already")
    for name, scheme in factory.schemes.items():
        define(name, scheme)
    _factories[factory.kind] = factory


def unregister(kind: str) -> None:
    """Forget a transport that was registered; links of it that exist stay."""
    factory = _factories.pop(kind, None)
    for name in factory.schemes if factory is not None else ():
        undefine(name)


def factories() -> dict[str, Factory]:
    """All of them by kind."""
    return dict(_factories)


def factory_of(address: Address) -> Factory:
    """The one that makes links of that address."""
    for factory in _factories.values():
        if factory.takes(address):
            return factory
    raise ConfigError(f"{address}: no transport takes it")


def stream_schemes() -> tuple[str, ...]:
    """Schemes of addresses that can be dialled."""
    found: dict[str, None] = {}
    for factory in _factories.values():
        if factory.stream:
            names = factory.schemes or (factory.kind,)
            found.update(dict.fromkeys(name for name in names if name in schemes()))
    return tuple(found)


def encrypts(address: Address) -> bool:
    """Whether links there need certificates."""
    return factory_of(address).encrypts
