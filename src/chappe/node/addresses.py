"""Addresses of a configuration: what a url means and whether it stays on this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

SCHEMES = ("tcp", "tls", "unix", "udp")


@dataclass(frozen=True, slots=True)
class Address:
    """A url taken apart; `host` is a path for unix sockets."""

    scheme: str
    host: str
    port: int

    @property
    def local(self) -> bool:
        """Nothing outside this machine can reach it."""
        return self.scheme == "unix" or is_loopback(self.host)


def parse_url(url: str) -> Address:
    """The parts of `tcp://host:port`, `tls://…`, `udp://…` or `unix:///path`; ValueError says what is wrong."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"{url!r} is no address; write one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if scheme == "unix":
        if not rest.startswith("/"):
            raise ValueError(f"{url!r}: the path of a unix socket starts with /, as in unix:///run/chappe.sock")
        return Address(scheme, rest, 0)
    host, port = parse_endpoint(rest, url)
    return Address(scheme, host, port)


def parse_endpoint(text: str, shown: str = "") -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{shown or text!r}: write host:port, with a port from 0 to 65535")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """True for `localhost` and addresses that only this machine reaches; a name is never trusted to be one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
