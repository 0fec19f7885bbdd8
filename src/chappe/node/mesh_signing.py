"""What nodes of a mesh say is signed with the key of their certificate, and believed by the mesh's authority.

A statement travels over nodes that must not be able to change it. Its signature carries the certificate of who made it,
so that whoever gets it needs nothing but the authority; each certificate is checked once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from chappe.errors import ConfigError, RefusedError
from chappe.security import files
from chappe.security.certificates import identity_of
from chappe.security.config import Tls

KNOWN = 4_096  # certificates that were checked and are remembered
_CONTEXT = b"chappe mesh statement 1\n"  # a signature for this is good for nothing else


class _Signed(msgspec.Struct, array_like=True, frozen=True):
    certificate: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class _Speaker:
    name: str
    key: PublicKeyTypes
    until_ns: int
    serial: str


class Signer:
    """Signs as the node whose certificate and key these are; ConfigError if they cannot be used."""

    def __init__(self, tls: Tls) -> None:
        certificate = x509.load_pem_x509_certificate(files.read(tls.cert, "the certificate"))
        self._certificate = certificate.public_bytes(serialization.Encoding.DER)
        self._key = serialization.load_pem_private_key(files.read(tls.key, "the private key"), password=None)
        if not isinstance(
            self._key,
            ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey | rsa.RSAPrivateKey,
        ):
            raise ConfigError(f"{tls.key}: a key of this kind cannot sign; use EC, Ed25519 or RSA")

    def __call__(self, text: bytes) -> bytes:
        """Certificate and signature of a statement."""
        return msgspec.msgpack.encode(_Signed(self._certificate, _sign(self._key, _CONTEXT + text)))


class Verifier:
    """Believes statements of nodes that the authority named, if they are neither expired nor revoked."""

    def __init__(self, tls: Tls, revoked: Callable[[str], bool], clock_ns: Callable[[], int] = time.time_ns) -> None:
        """`revoked(serial)` says whether a certificate is."""
        self._authorities = x509.load_pem_x509_certificates(files.read(tls.ca, "the authority's certificate"))
        self._revoked = revoked
        self._clock_ns = clock_ns
        self._known: dict[bytes, _Speaker] = {}
        self._decoder = msgspec.msgpack.Decoder(_Signed)

    def __call__(self, name: str, text: bytes, signature: bytes) -> bool:
        """Whether the node of that name made the statement."""
        try:
            signed = self._decoder.decode(signature)
        except msgspec.MsgspecError:
            return False
        speaker = self._known.get(signed.certificate) or self._check(signed.certificate)
        if speaker is None or speaker.name != name or self._revoked(speaker.serial):
            return False
        return self._clock_ns() < speaker.until_ns and _verified(speaker.key, signed.signature, _CONTEXT + text)

    def _check(self, der: bytes) -> _Speaker | None:
        try:
            certificate = x509.load_der_x509_certificate(der)
            identity = identity_of(certificate)
        except (ValueError, RefusedError):
            return None
        if identity.role != "node" or identity.expires_ns is None or not self._issued(certificate):
            return None
        if self._clock_ns() < int(certificate.not_valid_before_utc.timestamp()) * 1_000_000_000:
            return None
        if len(self._known) >= KNOWN:
            del self._known[next(iter(self._known))]
        speaker = _Speaker(identity.name, certificate.public_key(), identity.expires_ns, identity.serial)
        self._known[der] = speaker
        return speaker

    def _issued(self, certificate: x509.Certificate) -> bool:
        for authority in self._authorities:
            try:
                certificate.verify_directly_issued_by(authority)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return True
        return False


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
