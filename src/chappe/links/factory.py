"""What a transport is to the rest of Chappe (MR-045): a factory of links, and what links of its kind are good for."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from chappe.errors import ConfigError
from chappe.links.address import Address, Scheme
from chappe.links.link import Accepted, Raw
from chappe.links.listener import Listener
from chappe.links.options import LinkOptions
from chappe.links.proxy import Proxy

DATA = ("control", "status", "bulk")  # the kinds of data for which links are chosen


@dataclass(frozen=True, slots=True)
class Dialling:
    """What a factory needs to connect."""

    options: LinkOptions = field(default_factory=LinkOptions)
    tls: ssl.SSLContext | None = None
    server_name: str | None = None  # that the certificate must carry if it is not the host
    proxy: Proxy | None = None


@dataclass(frozen=True, slots=True)
class Listening:
    """What a factory needs to listen."""

    options: LinkOptions = field(default_factory=LinkOptions)
    tls: ssl.SSLContext | None = None


class Factory(Protocol):
    """Makes the links of one kind. Another transport is another object of this shape, given to `kinds.register`."""

    @property
    def kind(self) -> str: ...

    @property
    def schemes(self) -> Mapping[str, Scheme]:
        """How its addresses are written."""

    @property
    def stream(self) -> bool:
        """True for a reliable stream of bytes, which carries everything; False for datagrams beside one."""

    @property
    def secure(self) -> bool:
        """True if nobody can put words into the other side's mouth there: may be used off this machine."""

    @property
    def encrypts(self) -> bool:
        """True if it takes a TLS context."""

    @property
    def ranks(self) -> Mapping[str, int]:
        """How good it is for a kind of data, the smallest first; what is not listed it does not carry."""

    @property
    def migrates_to(self) -> frozenset[str]:
        """The kinds to which its traffic can move while it flows."""

    def takes(self, address: Address) -> bool:
        """Whether links of that address are its own."""

    async def connect(self, address: Address, how: Dialling) -> Raw:
        """A connection; LinkError, RefusedError or TimeoutExpired names address and reason."""

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        """Listen; `accepted(raw)` runs as a task for each connection."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a factory says about itself, as `Factory` explains it; its class says how links are made."""

    kind: str
    ranks: Mapping[str, int]
    migrates_to: frozenset[str]
    secure: bool = False
    encrypts: bool = False
    stream: bool = True
    schemes: Mapping[str, Scheme] = field(default_factory=dict)


def check_context(address: Address, secure: bool, tls: ssl.SSLContext | None) -> None:
    """ConfigError if a secure address has no certificates or a plain one has some."""
    if secure and tls is None:
        raise ConfigError(f"{address} needs certificates (an ssl.SSLContext)")
    if not secure and tls is not None:
        raise ConfigError(f"{address} takes no TLS context; use tls:// or wss://")


def check_proxy(address: Address, how: Dialling) -> None:
    """ConfigError if plain bytes would cross a network: `loopback` behind a proxy is the proxy's own."""
    proxy = how.proxy
    if proxy is not None and how.tls is None and not Address("tcp", proxy.host).is_loopback:
        raise ConfigError(f"{address} is plain and proxy {proxy} is on another machine; use wss:// or tls://")


def no_stream(address: Address, doing: str) -> ConfigError:
    """The error of a datagram address where a stream is wanted."""
    return ConfigError(f"{address} is no byte stream; {doing} tcp, tls, ws, wss or unix and open datagrams beside it")
