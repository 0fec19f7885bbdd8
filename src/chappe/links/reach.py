"""Sockets that are connected to an address, straight or through a proxy."""

from __future__ import annotations

import asyncio
import secrets
import socket

from chappe.errors import ConfigError, LinkError
from chappe.links.address import Address
from chappe.links.factory import Dialling
from chappe.links.link import reason_of
from chappe.links.options import LinkOptions, apply
from chappe.links.proxy import Proxy

CHUNK = 4096


async def reach(address: Address, how: Dialling) -> tuple[socket.socket, bytes]:
    """A connected, non-blocking socket and the bytes that came with the proxy's answer; the caller limits the time."""
    if how.proxy is None:
        return await connect(address, how.options), b""
    if address.scheme == "unix":
        raise ConfigError(f"{address} is on this machine; no proxy leads there")
    return await _tunnel(address, how.proxy, how.options)


async def connect(address: Address, options: LinkOptions) -> socket.socket:
    """A socket connected to the first place that answers of those the host name has."""
    loop = asyncio.get_running_loop()
    if address.scheme == "unix":
        return await _try(loop, socket.AF_UNIX, address.path, address, options)
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise LinkError(f"{address}: host name {address.host!r} is not known ({error.strerror})") from None
    last: LinkError | None = None
    for family, _, _, _, place in found:
        try:
            return await _try(loop, family, place, address, options)
        except LinkError as error:
            last = error
    raise last or LinkError(f"{address}: host name {address.host!r} has no address")


async def _try(
    loop: asyncio.AbstractEventLoop, family: int, place: object, address: Address, options: LinkOptions
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        apply(sock, options)
        await loop.sock_connect(sock, place)  # type: ignore[arg-type]
    except OSError as error:
        sock.close()
        raise LinkError(f"{address}: {reason_of(error)}") from error
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnel(address: Address, proxy: Proxy, options: LinkOptions) -> tuple[socket.socket, bytes]:
    from chappe.links.tunnel import Again, Opened, Tunnel  # HTTP, which most connections do without

    loop = asyncio.get_running_loop()
    tunnel = Tunnel(proxy, address, lambda: secrets.token_urlsafe(24))
    while True:
        try:
            sock = await connect(Address("tcp", proxy.host, proxy.port), options)
        except LinkError as error:
            raise LinkError(f"{address}: proxy {proxy}: {error}") from None
        try:
            await loop.sock_sendall(sock, tunnel.request())
            outcome = None
            while outcome is None:
                outcome = tunnel.receive(await loop.sock_recv(sock, CHUNK))
        except OSError as error:
            sock.close()
            raise LinkError(f"{address}: proxy {proxy}: {reason_of(error)}") from error
        except BaseException:
            sock.close()
            raise
        if isinstance(outcome, Opened):
            return sock, outcome.rest
        sock.close()
        if not isinstance(outcome, Again):
            raise outcome.error
