"""Which HTTP proxy is on the way to an address (MR-031); `tunnel` goes through it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from chappe.errors import ConfigError
from chappe.links.address import Address

ENVIRONMENT = "environment"  # the setting that asks for https_proxy and no_proxy


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; its password is in no text that is shown."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def parse_proxy(text: str) -> Proxy:
    """The proxy that `http://user:password@host:port` names; ConfigError says what is wrong and shows no password."""
    shown = f"proxy {_without_secret(text)!r}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{shown}: host or port is wrong; write it like http://host:3128") from None
    if parts.scheme != "http":
        raise ConfigError(f"{shown}: use an http:// proxy; what goes through it is encrypted end to end by wss or tls")
    if not host or not port:
        raise ConfigError(f"{shown}: host or port is missing; write it like http://host:3128")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"{shown}: nothing may follow the port")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if any(not character.isprintable() for character in user + password):
        raise ConfigError(f"{shown}: user or password has a character that can not be printed")
    return Proxy(host, port, user, password)


def _without_secret(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else text.rpartition("@")[2]


def proxy_for(setting: str, address: Address, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy to use on the way to an address; `environ` counts only if the setting is `environment`."""
    if not setting:
        return None
    if setting != ENVIRONMENT:
        return parse_proxy(setting)
    named = environ.get("https_proxy") or environ.get("HTTPS_PROXY") or ""
    if not named or address.scheme == "unix":
        return None
    if _excepted(address, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return parse_proxy(named if "://" in named else f"http://{named}")


def _excepted(address: Address, exceptions: str) -> bool:
    return any(_covers(item.strip().lower(), address) for item in exceptions.split(",") if item.strip())


def _covers(item: str, address: Address) -> bool:
    if item == "*":
        return True
    host, separator, port = item.rpartition(":")
    if separator and port.isdigit() and ":" not in host:
        if int(port) != address.port:
            return False
        item = host
    name = address.host.lower()
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        suffix = item.lstrip(".")
        return name == suffix or name.endswith(f".{suffix}")
    try:
        return ip in ipaddress.ip_network(item.strip("[]"), strict=False)
    except ValueError:
        return False
