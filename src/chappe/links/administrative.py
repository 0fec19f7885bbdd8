"""The administrative link (MR-043): what a node can be reached by, asked over HTTP before anything else is opened."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

from chappe.errors import ConfigError, LinkError, TimeoutExpired
from chappe.links.address import Address
from chappe.links.factory import Dialling
from chappe.links.negotiation import Capabilities, read_page
from chappe.links.options import LinkOptions
from chappe.links.proxy import Proxy
from chappe.links.reach import reach
from chappe.links.transported import TransportRaw, connected

PATH = "/capabilities"
BODY_LIMIT = 65_536
HEAD_LIMIT = 16_384


@dataclass(frozen=True, slots=True)
class Site:
    """Where capabilities are asked for."""

    address: Address  # of the TCP connection
    path: str
    secure: bool

    def __str__(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.address.port}{self.path}"


def is_site(url: str) -> bool:
    """Whether that url is one of capabilities and not one of a link."""
    return url.startswith(("http://", "https://"))


def parse_site(url: str) -> Site:
    """The place that an http url names; without a path /capabilities is meant. ConfigError says what is wrong."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} names no page of capabilities; write it like http://host:9100/capabilities")
    secure = parts.scheme == "https"
    path = parts.path if parts.path not in ("", "/") else PATH
    return Site(Address("tcp", host, port or (443 if secure else 80)), path, secure)


async def exchange(
    site: Site, *, tls: ssl.SSLContext | None = None, proxy: Proxy | None = None, options: LinkOptions | None = None
) -> Capabilities:
    """What the node behind that page can be reached by; LinkError, ProtocolError or TimeoutExpired names the page."""
    options = options or LinkOptions()
    if site.secure and tls is None:
        raise ConfigError(f"{site} needs certificates (a [tls] section)")
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            sock, _ = await reach(site.address, Dialling(options, proxy=proxy))
            context = tls if site.secure else None
            raw = TransportRaw(await connected(sock, site.address, context, site.address.host), site.address)
            try:
                body = await _get(raw, site)
            finally:
                raw.abort()
    except TimeoutError:
        raise TimeoutExpired(f"{site} did not answer within {options.connect_timeout_s:g} s") from None
    return read_page(body, site.address.host)


async def _get(raw: TransportRaw, site: Site) -> bytes:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    host = str(site).split("/")[2]
    headers = [("Host", host), ("Accept", "application/json"), ("Connection", "close")]
    request = h11.Request(method="GET", target=site.path, headers=headers)
    raw.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    body = bytearray()
    try:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await raw.read_some())
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise LinkError(f"{site} answers with HTTP status {event.status_code}")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_LIMIT:
                    raise LinkError(f"{site} says more than {BODY_LIMIT} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise LinkError(f"{site} ended before its answer was complete")
    except h11.RemoteProtocolError as error:
        raise LinkError(f"{site} does not speak HTTP: {error}") from None
