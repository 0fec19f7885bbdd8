"""Addresses of links as URLs: tcp://host:port, tls://host:port, udp://host:port, unix:///path."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace

from chappe.errors import ConfigError

SCHEMES = ("tcp", "tls", "udp", "unix")
PORT_MAX = 65_535
UNIX_PATH_MAX = 107  # bytes of sun_path, less the closing zero
EXAMPLES = "tcp://127.0.0.1:7400, tls://[::1]:7400, udp://host:7400 or unix:///run/chappe.sock"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a link ends. `port` 0 asks the system for a free one when listening."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        """True if nothing outside this machine can reach it: 127.0.0.0/8, ::1, `localhost` or a Unix socket."""
        if self.scheme == "unix" or self.host.lower() == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(ip, "ipv4_mapped", None)
        return bool((mapped or ip).is_loopback)

    def with_port(self, port: int) -> Address:
        """The same place with another port number."""
        return replace(self, port=port)

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(text: str, schemes: tuple[str, ...] = SCHEMES) -> Address:
    """The address a URL names; ConfigError says which part is wrong and how it should look."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ConfigError(f"address {text!r} has no scheme; write it like {EXAMPLES}")
    if scheme not in SCHEMES:
        raise ConfigError(f"address {text!r}: scheme {scheme!r} is unknown; use one of {', '.join(SCHEMES)}")
    if scheme not in schemes:
        raise ConfigError(f"address {text!r}: {scheme} can not be used here; use {' or '.join(schemes)}")
    if scheme == "unix":
        return _unix(text, rest)
    host, port = _split(text, rest)
    return Address(scheme, host, port)


def _unix(text: str, path: str) -> Address:
    if not path.startswith("/"):
        raise ConfigError(f"address {text!r}: a Unix socket needs an absolute path, like unix:///run/chappe.sock")
    if "\0" in path:
        raise ConfigError(f"address {text!r}: the path contains a zero byte")
    size = len(path.encode(errors="surrogateescape"))
    if size > UNIX_PATH_MAX:
        raise ConfigError(f"address {text!r}: the path has {size} bytes; a Unix socket takes {UNIX_PATH_MAX}")
    return Address("unix", path=path)


def _split(text: str, rest: str) -> tuple[str, int]:
    if rest.startswith("["):
        host, closing, tail = rest[1:].partition("]")
        if not closing:
            raise ConfigError(f"address {text!r}: the bracket around the IPv6 address is not closed")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"address {text!r}: {host!r} is not an IPv6 address") from None
        separator, port_text = tail[:1], tail[1:]
    else:
        host, separator, port_text = rest.rpartition(":")
        if ":" in host:
            raise ConfigError(f"address {text!r}: put an IPv6 address in brackets, like tcp://[::1]:7400")
    if separator != ":":
        raise ConfigError(f"address {text!r} has no port; write it like {EXAMPLES}")
    if not host or any(character in "/@?# \t" for character in host):
        raise ConfigError(f"address {text!r}: {host!r} is not a host name or IP address")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > PORT_MAX:
        raise ConfigError(f"address {text!r}: port {port_text!r} is not a number from 0 to {PORT_MAX}")
    return host, int(port_text)
