"""Connecting to an address."""

from __future__ import annotations

import asyncio
import socket
import ssl

from chappe.errors import ConfigError, LinkError, TimeoutExpired
from chappe.links.address import Address
from chappe.links.link import LINGER_S, Raw, reason_of
from chappe.links.options import LinkOptions, apply
from chappe.links.plain import PlainRaw
from chappe.links.tls import TlsRaw, TlsStream


async def dial(
    address: Address,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    options: LinkOptions | None = None,
) -> Raw:
    """A connection to a tcp, tls or unix address; LinkError or TimeoutExpired names the address and the reason.

    A tls address needs a context; `server_name` is the name the certificate must carry if it is not the host.
    """
    options = options or LinkOptions()
    if address.scheme == "udp":
        raise ConfigError(f"{address} is no byte stream; connect by tcp, tls or unix and open datagrams beside it")
    if (address.scheme == "tls") != (tls is not None):
        remedy = "needs certificates (an ssl.SSLContext)" if tls is None else "takes no TLS context; use tls://"
        raise ConfigError(f"{address} {remedy}")
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            sock = await _connect(address, options)
            if tls is None:
                return PlainRaw(sock, address, options)
            return await _secure(sock, address, tls, server_name or address.host)
    except TimeoutError:
        raise TimeoutExpired(f"{address} did not answer within {options.connect_timeout_s:g} s") from None


async def _connect(address: Address, options: LinkOptions) -> socket.socket:
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


async def _secure(sock: socket.socket, address: Address, tls: ssl.SSLContext, name: str) -> Raw:
    loop = asyncio.get_running_loop()
    stream = TlsStream()
    try:
        await loop.create_connection(
            lambda: stream, sock=sock, ssl=tls, server_hostname=name, ssl_shutdown_timeout=LINGER_S
        )
    except (ssl.SSLError, ssl.CertificateError) as error:
        sock.close()
        raise LinkError(f"{address}: TLS failed: {error.reason or error}") from error
    except OSError as error:
        sock.close()
        raise LinkError(f"{address}: connection lost during TLS: {reason_of(error)}") from error
    except BaseException:
        sock.close()
        raise
    return TlsRaw(stream, address)
