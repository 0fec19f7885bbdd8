"""What nodes of a mesh state is signed with the key of their certificate, and believed by the mesh's authority.

A statement travels over nodes that must not be able to change it. Its signature carries the certificate of who made it,
so that whoever gets it needs nothing but the authority; each certificate is checked once. Both sides use the
credentials of the node as they are now: a reload changes what is signed with and who is believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from chappe.errors import ConfigError, RefusedError
from chappe.security.certificates import identity_of, issued_by_one
from chappe.security.credentials import Credentials

KNOWN = 4_096  # certificates that were checked and are remembered
BEHIND_NS = 86_400_000_000_000  # by which the own clock may be behind: a renewed certificate is believed all the same
_CONTEXT = b"chappe mesh statement 2\n"  # a signature for this is good for nothing else


class _Signed(msgspec.Struct, array_like=True, frozen=True):
    certificate: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class _Signatory:
    name: str
    key: PublicKeyTypes
    until_ns: int
    serial: str


class Signer:
    """Signs as the node whose credentials these are; ConfigError if they cannot be used."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self(b"")

    def __call__(self, body: bytes) -> bytes:
        """Certificate and signature of a statement."""
        own, key = self._credentials.own, self._credentials.key
        if own is None or key is None:
            raise ConfigError("[tls] needs `cert` and `key` for the statements of a mesh; `chappe cert node DIR NAME`")
        return msgspec.msgpack.encode(_Signed(own.certificate, _sign(key, _CONTEXT + body)))


class Verifier:
    """Believes statements of nodes that an authority named, if they are neither expired nor revoked."""

    def __init__(self, credentials: Credentials, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._credentials = credentials
        self._authorities = credentials.authorities
        self._clock_ns = clock_ns
        self._known: dict[bytes, _Signatory] = {}
        self._decoder = msgspec.msgpack.Decoder(_Signed)

    def __call__(self, name: str, body: bytes, signature: bytes) -> bool:
        """Whether the node of that name made the statement."""
        signed = self._read(signature)
        originator = None if signed is None else self._signatory(name, signed.certificate)
        if signed is None or originator is None:
            return False
        return _verified(originator.key, signed.signature, _CONTEXT + body)

    def believed(self, name: str, signature: bytes) -> bool:
        """Whether who made a statement, whose signature was verified before, is still believed."""
        signed = self._read(signature)
        return signed is not None and self._signatory(name, signed.certificate) is not None

    def _read(self, signature: bytes) -> _Signed | None:
        try:
            return self._decoder.decode(signature)
        except msgspec.MsgspecError:
            return None

    def _signatory(self, name: str, der: bytes) -> _Signatory | None:
        """Who has that certificate, if it is believed and the node of that name."""
        if self._authorities is not self._credentials.authorities:
            self._authorities = self._credentials.authorities
            self._known.clear()
        originator = self._known.get(der) or self._check(der)
        if originator is None or originator.name != name or self._credentials.revoked(originator.serial):
            return None
        return originator if self._clock_ns() < originator.until_ns else None

    def _check(self, der: bytes) -> _Signatory | None:
        try:
            certificate = x509.load_der_x509_certificate(der)
            identity = identity_of(certificate)
        except (ValueError, RefusedError):
            return None
        if identity.role != "node" or identity.expires_ns is None:
            return None
        if not issued_by_one(certificate, self._authorities):
            return None
        if self._clock_ns() + BEHIND_NS < int(certificate.not_valid_before_utc.timestamp()) * 1_000_000_000:
            return None
        if len(self._known) >= KNOWN:
            del self._known[next(iter(self._known))]
        originator = _Signatory(identity.name, certificate.public_key(), identity.expires_ns, identity.serial)
        self._known[der] = originator
        return originator


def _sign(key: PrivateKeyTypes, text: bytes) -> bytes:
    match key:
        case ec.EllipticCurvePrivateKey():
            return key.sign(text, ec.ECDSA(hashes.SHA256()))
        case rsa.RSAPrivateKey():
            return key.sign(text, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
        case ed25519.Ed25519PrivateKey() | ed448.Ed448PrivateKey():
            return key.sign(text)
    raise ConfigError("a key of this kind cannot sign; use EC, Ed25519 or RSA")


def _verified(key: PublicKeyTypes, signature: bytes, text: bytes) -> bool:
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signature, text, ec.ECDSA(hashes.SHA256()))
            case rsa.RSAPublicKey():
                key.verify(signature, text, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
            case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
                key.verify(signature, text)
            case _:
                return False
    except InvalidSignature:
        return False
    return True
