"""The sections `[tls]`, `[tokens]`, `[[rule]]` and `[audit]` of a node's TOML file, as frozen structs.

The node package embeds them in its own tree; nothing here reads a file. `resolved(base)` makes relative paths relative
to the file they were written in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

Role = Literal["node", "client", "broker", "admin"]
Action = Literal["publish", "subscribe", "inbox", "confirm", "register", "watch", "control", "admin"]


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tls]`: the files that say who this side is and whom it believes."""

    ca: str
    """Certificates of the authorities that are believed (PEM, one or more)."""
    cert: str = ""
    """Own certificate (PEM). A node must have one; a client that brings a token may leave it out."""
    key: str = ""
    """Private key of `cert` (PEM, not encrypted, readable by its owner alone)."""
    crl: str = ""
    """Revocation lists (PEM), one for each authority in `ca`. Without it revoked certificates are still believed."""
    minimum: Literal["1.3", "1.2"] = "1.3"
    """Oldest TLS version that is spoken."""
    client_certificates: Literal["optional", "required"] = "optional"
    """`optional`: a client may bring a token instead of a certificate. Nodes always need a certificate."""
    verify_host: bool = True
    """Compare the certificate of a node with the host name or address that was dialled."""

    def __post_init__(self) -> None:
        if not self.ca:
            raise ValueError("`ca` is empty: give the file with the authority's certificate (ca.pem)")
        if bool(self.cert) != bool(self.key):
            missing = "key" if self.cert else "cert"
            raise ValueError(f"`{missing}` is missing: `cert` and `key` belong together")

    def resolved(self, base: Path) -> Tls:
        """The same with paths taken relative to `base`."""
        paths = {name: under(base, getattr(self, name)) for name in ("ca", "cert", "key", "crl")}
        return msgspec.structs.replace(self, **paths)


class Tokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tokens]`: which signed tokens of clients are believed."""

    keys: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Public keys (PEM, Ed25519) of those who may issue tokens: `token.pub` of `chappe token key`."""
    revoked: str = ""
    """File with one revoked token identifier, or `name:NAME`, a line; `#` starts a comment."""
    leeway_s: Annotated[int, msgspec.Meta(ge=0, le=60)] = 5
    """How far clocks may differ when times of a token are judged."""

    def resolved(self, base: Path) -> Tokens:
        """The same with paths taken relative to `base`."""
        keys = tuple(under(base, key) for key in self.keys)
        return msgspec.structs.replace(self, keys=keys, revoked=under(base, self.revoked))


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[[rule]]`: who may do what where. What no rule allows is refused; a deny rule beats every allow rule."""

    action: Action | tuple[Action, ...]
    """publish, subscribe (topics); inbox, confirm (nodes); register, watch (variables); control; admin. Or a list."""
    pattern: str | tuple[str, ...]
    """Addresses with `+` and `#`: a topic, `int:42`, `publisher/variable`, `node/command`; `{name}`: the asker."""
    names: tuple[str, ...] = ()
    """Identities it is for, `*` matches any characters; empty: all names."""
    roles: tuple[Role, ...] = ()
    """Roles it is for; empty: all roles. With `names` both must fit."""
    deny: bool = False
    """Refuse instead of allow; a subscription that merely overlaps the pattern is refused."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.action if isinstance(self.action, tuple) else (self.action,)

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.pattern if isinstance(self.pattern, tuple) else (self.pattern,)


class Audit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[audit]`: where administration is written down."""

    path: str
    """File of JSON lines; rotated files get `.1`, `.2` and so on."""
    max_bytes: Annotated[int, msgspec.Meta(ge=4096)] = 16 * 1024 * 1024
    """Size at which the file is rotated."""
    keep: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    """How many rotated files are kept."""

    def resolved(self, base: Path) -> Audit:
        """The same with its path taken relative to `base`."""
        return msgspec.structs.replace(self, path=under(base, self.path))


def under(base: Path, path: str) -> str:
    return str(base / path) if path else ""
