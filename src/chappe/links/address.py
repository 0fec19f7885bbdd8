"""Addresses of links as URLs: tcp://host:port, tls://host:port?parallel=4, udp://host:port, unix:///path, ws://host/path."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from chappe.errors import ConfigError

PORT_MAX = 65_535
UNIX_PATH_MAX = 107  # bytes of sun_path, less the closing zero
PARALLEL_MAX = 64
WEB_PATH = "/chappe"
EXAMPLES = "tcp://127.0.0.1:7400, tls://[::1]:7400, udp://host:7400, ws://host:8080 or unix:///run/chappe.sock"


class Form(Enum):
    """What follows the scheme."""

    PLACE = "host:port"
    PATH = "/path"
    WEB = "host:port/path"  # port and path may be left out
    GROUP = "multicast address:port"


Check = Callable[[str], str]  # what is wrong with the value of an option; empty if nothing


def whole(least: int, most: int) -> Check:
    """An option that is a whole number."""

    def check(text: str) -> str:
        good = text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most
        return "" if good else f"is not a number from {least} to {most}"

    return check


def _interface(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "is not the IP address of an interface of this machine"
    return ""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How addresses of a scheme are written."""

    form: Form
    port: int | None = None  # where none is written
    options: Mapping[str, Check] = field(default_factory=dict)


_STRIPES = {"parallel": whole(2, PARALLEL_MAX)}
_GROUP = {"ttl": whole(0, 255), "interface": _interface}
_known: dict[str, Scheme] = {
    "tcp": Scheme(Form.PLACE, options=_STRIPES),
    "tls": Scheme(Form.PLACE, options=_STRIPES),
    "udp": Scheme(Form.PLACE),
    "unix": Scheme(Form.PATH),
    "ws": Scheme(Form.WEB, port=80),
    "wss": Scheme(Form.WEB, port=443),
    "udp+multicast": Scheme(Form.GROUP, options=_GROUP),
}


def define(name: str, scheme: Scheme) -> None:
    """Make another scheme known; ConfigError if its name is taken."""
    if name in _known and _known[name] != scheme:
        raise ConfigError(f"the scheme {name!r} exists already")
    _known[name] = scheme


def undefine(name: str) -> None:
    """Forget a scheme."""
    _known.pop(name, None)


def schemes() -> tuple[str, ...]:
    """All that are known."""
    return tuple(_known)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a link ends. `port` 0 asks the system for a free one when listening."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_loopback(self) -> bool:
        """True if nothing outside this machine can reach it: 127.0.0.0/8, ::1, `localhost` or a Unix socket."""
        if self.scheme == "unix" or self.host.lower() == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(dict(self.options).get("interface", self.host).partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(ip, "ipv4_mapped", None)
        return bool((mapped or ip).is_loopback)

    @property
    def is_any(self) -> bool:
        """True for 0.0.0.0 and ::, on which a node can be reached by any of its addresses."""
        return self.host in ("0.0.0.0", "::")

    def option(self, name: str, default: str = "") -> str:
        """The value written after `?`, or the default."""
        return dict(self.options).get(name, default)

    def with_port(self, port: int) -> Address:
        """The same place with another port number."""
        return replace(self, port=port)

    def with_host(self, host: str) -> Address:
        """The same place on another host."""
        return replace(self, host=host)

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.options)
        tail = f"?{query}" if query else ""
        if self.scheme == "unix":
            return f"unix://{self.path}{tail}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}{tail}"


def parse(text: str, allowed: tuple[str, ...] | None = None) -> Address:
    """The address a URL names; ConfigError says which part is wrong and how it should look."""
    name, separator, rest = text.partition("://")
    if not separator:
        raise ConfigError(f"address {text!r} has no scheme; write it like {EXAMPLES}")
    scheme = _known.get(name)
    if scheme is None:
        raise ConfigError(f"address {text!r}: scheme {name!r} is unknown; use one of {', '.join(_known)}")
    if allowed is not None and name not in allowed:
        raise ConfigError(f"address {text!r}: {name} can not be used here; use {' or '.join(allowed)}")
    if scheme.form is Form.PATH:
        return _unix(text, name, rest)
    rest, _, query = rest.partition("?")
    options = _options(text, name, scheme, query)
    path = ""
    if scheme.form is Form.WEB:
        rest, path = _web(text, rest)
    host, port = _split(text, rest, scheme.port)
    if scheme.form is Form.GROUP:
        _check_group(text, host)
    return Address(name, host, port, path, options)


def _options(text: str, name: str, scheme: Scheme, query: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for item in query.split("&") if query else ():
        key, _, value = item.partition("=")
        check = scheme.options.get(key)
        if check is None:
            listed = ", ".join(scheme.options) or "none"
            raise ConfigError(f"address {text!r}: {name} has no option {key!r} (it has: {listed})")
        problem = check(value)
        if problem or key in found:
            raise ConfigError(f"address {text!r}: {key} {f'{value!r} {problem}' if problem else 'is given twice'}")
        found[key] = value
    return tuple(sorted(found.items()))


def _unix(text: str, name: str, path: str) -> Address:
    if not path.startswith("/"):
        raise ConfigError(f"address {text!r}: a Unix socket needs an absolute path, like unix:///run/chappe.sock")
    if "\0" in path:
        raise ConfigError(f"address {text!r}: the path contains a zero byte")
    size = len(path.encode(errors="surrogateescape"))
    if size > UNIX_PATH_MAX:
        raise ConfigError(f"address {text!r}: the path has {size} bytes; a Unix socket takes {UNIX_PATH_MAX}")
    return Address(name, path=path)


def _web(text: str, rest: str) -> tuple[str, str]:
    place, slash, path = rest.partition("/")
    path = slash + path if path else WEB_PATH
    if not (path.isascii() and path.isprintable()) or any(character in ' #"<>\\^`{|}' for character in path):
        raise ConfigError(f"address {text!r}: {path!r} is not a path of a URL")
    return place, path


def _check_group(text: str, host: str) -> None:
    try:
        group = ipaddress.ip_address(host)
    except ValueError:
        group = None
    if group is None or not group.is_multicast or group.version != 4:
        raise ConfigError(f"address {text!r}: {host!r} is not an IPv4 multicast address, like 239.192.0.1")


def _split(text: str, rest: str, default: int | None) -> tuple[str, int]:
    if rest.startswith("["):
        host, closing, tail = rest[1:].partition("]")
        if not closing:
            raise ConfigError(f"address {text!r}: the bracket around the IPv6 address is not closed")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"address {text!r}: {host!r} is not an IPv6 address") from None
        separator, port_text = tail[:1], tail[1:]
    elif ":" not in rest and default is not None:
        host, separator, port_text = rest, "", ""
    else:
        host, separator, port_text = rest.rpartition(":")
        if ":" in host:
            raise ConfigError(f"address {text!r}: put an IPv6 address in brackets, like tcp://[::1]:7400")
    if not separator and not port_text and default is not None:
        separator, port_text = ":", str(default)
    if separator != ":":
        raise ConfigError(f"address {text!r} has no port; write it like {EXAMPLES}")
    if not host or any(character in "/@?# \t" for character in host):
        raise ConfigError(f"address {text!r}: {host!r} is not a host name or IP address")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > PORT_MAX:
        raise ConfigError(f"address {text!r}: port {port_text!r} is not a number from 0 to {PORT_MAX}")
    return host, int(port_text)
