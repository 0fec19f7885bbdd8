"""Signed tokens of clients: Ed25519 signatures, an expiry, an identifier that can be revoked.

A token may carry its own rules; then it gives exactly those rights, less what the node denies. Only the algorithm EdDSA
is ever accepted, whatever a token says of itself.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from chappe.errors import ConfigError, RefusedError
from chappe.security import files
from chappe.security.config import Role, Rule, Tokens
from chappe.security.identity import Identity, checked_name
from chappe.security.rules import check_rule

AUDIENCE = "chappe"
ALGORITHM = "EdDSA"
MAX_CHARACTERS = 8192
REMEMBERED = 4_096  # tokens whose signature was found to be good
_SECOND = 1_000_000_000


class Claims(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a token says."""

    sub: str
    role: Role
    aud: str | tuple[str, ...]
    iat: int
    exp: int
    jti: str
    nbf: int | None = None
    rules: tuple[Rule, ...] | None = None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The private key that issues tokens, and its id."""

    private: Ed25519PrivateKey = field(repr=False)
    kid: str


@dataclass(frozen=True, slots=True)
class Revocations:
    """Tokens that are no longer believed, by identifier or by name."""

    identifiers: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def names_of(self, name: str, identifier: str) -> str | None:
        """Why a token is revoked, or None."""
        if identifier in self.identifiers:
            return f"token {identifier} of '{name}' is revoked"
        if name in self.names:
            return f"all tokens of '{name}' are revoked"
        return None


def create_key(folder: Path) -> SigningKey:
    """A new key in token.key (for the issuer) and token.pub (for every node); existing files are kept."""
    private = Ed25519PrivateKey.generate()
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
    with files.locked(folder):
        for path in (folder / "token.key", folder / "token.pub"):
            if path.exists():
                raise ConfigError(f"{path} exists already and is not overwritten")
        files.write(folder / "token.key", secret, files.PRIVATE)
        files.write(folder / "token.pub", public)
    return SigningKey(private, key_id(private.public_key()))


def load_signing_key(path: Path) -> SigningKey:
    """The private key of a file; ConfigError names the file and says nothing of its content."""
    try:
        key = serialization.load_pem_private_key(files.read(path, "the token key"), password=None)
    except (ValueError, TypeError):
        raise ConfigError(f"{path}: there is no unencrypted private key in PEM form in it") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: the key is not Ed25519; make one with `chappe token key DIR`")
    return SigningKey(key, key_id(key.public_key()))


def load_public_keys(paths: Iterable[str | Path]) -> dict[str, Ed25519PublicKey]:
    """Public keys by their id; ConfigError names the file that is wrong."""
    keys: dict[str, Ed25519PublicKey] = {}
    for path in paths:
        try:
            key = serialization.load_pem_public_key(files.read(path, "the public token key"))
        except ValueError:
            raise ConfigError(f"{path}: no public key in PEM form in it; give token.pub, not token.key") from None
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigError(f"{path}: the key is not Ed25519; make one with `chappe token key DIR`")
        keys[key_id(key)] = key
    return keys


def load_revocations(path: str | Path) -> Revocations:
    """The revocation list of a file: an identifier or `name:NAME` a line, `#` starts a comment."""
    try:
        text = files.read(path, "the list of revoked tokens").decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the list of revoked tokens is not text") from None
    entries = {line.partition("#")[0].strip() for line in text.splitlines()} - {""}
    names = {entry.removeprefix("name:").strip() for entry in entries if entry.startswith("name:")}
    return Revocations(frozenset(entry for entry in entries if not entry.startswith("name:")), frozenset(names))


def key_id(key: Ed25519PublicKey) -> str:
    """The id of a key, from the key itself."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def issue(
    key: SigningKey, name: str, role: Role, ttl_s: int, now_ns: int, rules: tuple[Rule, ...] | None = None
) -> str:
    """A token for that name; with `rules` it gives those rights and no others."""
    if role == "node":
        raise ConfigError("a node identifies itself by certificate; tokens are for clients, brokers and administrators")
    if ttl_s < 1:
        raise ConfigError("a token must live for at least a second")
    for place, rule in enumerate(rules or (), 1):
        check_rule(rule, f"rule {place} of the token")
        if rule.names or rule.roles:
            raise ConfigError(f"rule {place} of the token: its rules are for its bearer; leave out names and roles")
    issued = now_ns // _SECOND
    claims = Claims(
        sub=checked_name(name), role=role, aud=AUDIENCE, iat=issued, exp=issued + ttl_s, jti=secrets.token_hex(16),
        rules=rules,
    )  # fmt: skip
    token = jwt.encode(msgspec.to_builtins(claims), key.private, algorithm=ALGORITHM, headers={"kid": key.kid})
    if len(token) > MAX_CHARACTERS:
        raise ConfigError(f"the token would have {len(token)} characters, above {MAX_CHARACTERS}; give it fewer rules")
    return token


def verify(
    token: str,
    keys: Mapping[str, Ed25519PublicKey],
    now_ns: int,
    *,
    revoked: Revocations = Revocations(),  # frozen and empty
    leeway_s: int = 5,
) -> Identity:
    """The identity a token proves; RefusedError says why it proves none."""
    return _identity(*_signed_claims(token, keys), now_ns, revoked, leeway_s)


def _identity(claims: Claims, kid: str, now_ns: int, revoked: Revocations, leeway_s: int) -> Identity:
    now_s = now_ns / _SECOND
    if now_s >= claims.exp + leeway_s:
        raise RefusedError(f"the token of '{claims.sub[:80]}' expired {now_s - claims.exp:.0f} s ago; issue a new one")
    if now_s + leeway_s < max(claims.iat, claims.nbf or claims.iat):
        raise RefusedError(f"the token of '{claims.sub[:80]}' is not valid yet; compare the clocks of issuer and node")
    if claims.role == "node":
        raise RefusedError("the token has the role 'node'; a node identifies itself by certificate")
    if why := revoked.names_of(claims.sub, claims.jti):
        raise RefusedError(why)
    try:
        for place, rule in enumerate(claims.rules or (), 1):
            check_rule(rule, f"rule {place} of the token")
        return Identity(
            name=claims.sub,
            role=claims.role,
            how="token",
            expires_ns=claims.exp * _SECOND,
            fingerprint=kid,
            serial=claims.jti,
            grants=claims.rules,
        )
    except (ValueError, ConfigError) as error:
        raise RefusedError(f"the token cannot be used: {error}") from None


def unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a token as they stand, proven by nothing; for people who look at one."""
    try:
        parts = jwt.api_jwt.decode_complete(token, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise RefusedError(f"this is no token: {error}") from None
    return parts["header"], parts["payload"]


class TokenVerifier:
    """Believes the tokens that a `[tokens]` section says, with its files as they were when it was made."""

    def __init__(self, config: Tokens) -> None:
        self._keys = load_public_keys(config.keys)
        self._revoked = load_revocations(config.revoked) if config.revoked else Revocations()
        self._leeway_s = config.leeway_s
        self._signed: OrderedDict[bytes, tuple[Claims, str]] = OrderedDict()  # by hash, whose signature is good

    def verify(self, token: str, now_ns: int) -> Identity:
        """The identity a token proves; RefusedError says why it proves none.

        The signature of a token that comes again is not computed again: clients reconnect, often many at once.
        """
        digest = hashlib.blake2b(token.encode(errors="replace"), digest_size=32).digest()
        signed = self._signed.get(digest)
        if signed is None:
            signed = self._signed[digest] = _signed_claims(token, self._keys)
            if len(self._signed) > REMEMBERED:
                self._signed.popitem(last=False)
        else:
            self._signed.move_to_end(digest)
        return _identity(*signed, now_ns, self._revoked, self._leeway_s)

    def lapsed(self, identity: Identity) -> str | None:
        """Why a token that was believed once is not any more, or None."""
        if identity.fingerprint not in self._keys:
            return f"the key {identity.fingerprint} that signed the token of '{identity.name}' is no longer believed"
        return self._revoked.names_of(identity.name, identity.serial)


def _signed_claims(token: str, keys: Mapping[str, Ed25519PublicKey]) -> tuple[Claims, str]:
    if len(token) > MAX_CHARACTERS:
        raise RefusedError(f"the token has {len(token)} characters; a token has at most {MAX_CHARACTERS}")
    try:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm != ALGORITHM:
            raise RefusedError(f"the token is signed with {str(algorithm)[:20]!r}; only {ALGORITHM} is accepted")
        if not isinstance(kid, str) or kid not in keys:
            raise RefusedError(
                f"the token is signed by key {str(kid)[:40]!r}, which this node does not have in [tokens] keys "
                f"({', '.join(sorted(keys)) or 'none'})"
            )
        # Times are judged by the caller's clock, not by PyJWT's.
        payload = jwt.decode(
            token,
            keys[kid],
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            options={
                "require": ["sub", "aud", "iat", "exp", "jti"],
                "verify_exp": False, "verify_iat": False, "verify_nbf": False,
            },
        )  # fmt: skip
        return msgspec.convert(payload, Claims), kid
    except jwt.InvalidSignatureError:
        raise RefusedError("the signature of the token is wrong: it was changed, or signed by another key") from None
    except jwt.InvalidAudienceError:
        raise RefusedError(f"the token is not meant for {AUDIENCE!r} (claim `aud`)") from None
    except (jwt.InvalidTokenError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise RefusedError(f"the token cannot be read: {str(error)[:200]}") from None
