"""The table of a TOML file that says which node a process is a client of, and how it proves who it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from chappe.client.connecting import Connecting, connect
from chappe.errors import ConfigError

T = TypeVar("T")
AnyAccess = TypeVar("AnyAccess", bound="NodeAccess")


class NodeAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Url of the node, or several of which the nearest is taken; token or certificate of the client."""

    url: str | tuple[str, ...] = "tcp://127.0.0.1:7400"
    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def urls(self) -> list[str]:
        return [self.url] if isinstance(self.url, str) else list(self.url)

    def check_access(self, table: str) -> None:
        """ConfigError if what belongs together is not there together."""
        if bool(self.cert) is not bool(self.key):
            raise ConfigError(f"{table}.cert, {table}.key: belong together")
        if self.cert and not self.ca:
            raise ConfigError(f"{table}.ca: is needed with cert and key")

    def connect(
        self, table: str, name: str, *, url: str | None = None, wait_s: float = 0.0, flooded: bool = False
    ) -> Connecting:
        """A client of the node, or of another process at `url`; ConfigError if the token cannot be read."""
        tls = (self.ca, self.cert, self.key) if self.cert else Path(self.ca) if self.ca else None
        token = _token(self.token_file, table)
        return connect(url or self.urls, name=name, token=token, tls=tls, wait_s=wait_s, flooded=flooded)


def read_config(path: str | Path) -> str:
    """The text of a configuration; ConfigError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def decode_config(text: str, source: str, into: type[T], check: Callable[[T], None]) -> T:
    """A TOML text as a tree that was checked; ConfigError names the source, the key and the reason."""
    try:
        tree = msgspec.toml.decode(text, type=into)
        check(tree)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return tree


def resolve_paths(table: AnyAccess, base: Path, *keys: str) -> AnyAccess:
    """The table with these paths, and those of its access, relative to the folder of its file; URIs stay."""
    changed = {}
    for key in ("token_file", "ca", "cert", "key", *keys):
        text: str = getattr(table, key)
        if text and "://" not in text:
            changed[key] = str(base / text)
    return msgspec.structs.replace(table, **changed)


def _token(file: str, table: str) -> Callable[[], str] | None:
    """Read at each connection, so that a token can be renewed."""
    if not file:
        return None

    def token() -> str:
        try:
            return Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{table}.token_file {file}: cannot be read: {error}") from None

    token()
    return token
