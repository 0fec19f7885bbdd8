"""Who is at the other end of a connection, once it has been proven."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Literal

import msgspec

from chappe.errors import ConfigError
from chappe.security.config import Role, Rule

How = Literal["certificate", "token", "dev"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_RULE = "1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A name and role that a certificate, a token or `--dev` vouches for."""

    name: str
    role: Role
    how: How
    expires_ns: int | None = None  # wall clock; a connection must not outlive it
    fingerprint: str = ""  # SHA-256 of the certificate, or the id of the key that signed the token
    serial: str = ""  # of the certificate in hex, or the token's identifier: what a revocation names
    certificate: bytes = b""  # DER: which authority issued it is asked again when one is removed
    grants: tuple[Rule, ...] | None = None  # rules inside a token: they replace the allow rules of the node

    def __post_init__(self) -> None:
        # Names are put into patterns in place of {name}; a wildcard or '/' in one would widen a rule.
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name[:80]!r} is not a name: {_NAME_RULE}")

    def __str__(self) -> str:
        return f"{self.role} '{self.name}'"

    def known_as(self, claimed: str) -> str:
        """What a connection that gave this name for itself is shown as: its proven name, and then the other one."""
        return claimed if claimed == self.name else f"{self.name}/{claimed[:64]}"


def checked_name(name: str) -> str:
    """The name itself; ConfigError says what a name looks like."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is not a name: {_NAME_RULE}")
    return name


def dev_identity(name: str, role: Role) -> Identity:
    """The identity of anybody on a node started with `--dev`; what does not fit in a name becomes '-'."""
    fitting = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:64]
    return Identity(name=fitting or "anonymous", role=role, how="dev")


def issuer_of(identity: Identity, session: bytes) -> bytes:
    """Who publishes the events of a connection: 16 bytes, the same at every node and after a renewed certificate.

    They are a hash of what was authenticated and of the secret session number, so whoever sees them learns neither
    the number nor how to publish under them. `--dev` authenticates nobody: there the number alone makes the issuer.
    """
    name = b"" if identity.how == "dev" else identity.name.encode()
    role = identity.role.encode()
    fields = b"".join((bytes((len(name),)), name, bytes((len(role),)), role, session))
    return hashlib.blake2b(fields, digest_size=16, person=b"chappe.issuer").digest()


def datagram_key() -> bytes:
    """16 random bytes for the datagrams of one link."""
    return secrets.token_bytes(16)
