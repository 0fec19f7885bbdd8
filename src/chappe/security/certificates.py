"""X.509 without files: what a certificate of this project looks like, and what it says.

Keys are EC P-256: every OpenSSL that Python 3.11 links speaks it in TLS 1.2 and 1.3 on both sides. The role and name
stand in a URI subject alternative name, `chappe:node:west`; only node certificates may also serve.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chappe.errors import ConfigError, RefusedError
from chappe.security.config import Role
from chappe.security.identity import Identity

ROLES: tuple[Role, ...] = get_args(Role)
CLOCK_SKEW = timedelta(minutes=5)  # a certificate is valid at once on a machine whose clock is a little behind
_SCHEME = "chappe:"
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key as PKCS#8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pem(thing: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    """A certificate or list as PEM."""
    return thing.public_bytes(serialization.Encoding.PEM)


def authority_certificate(key: ec.EllipticCurvePrivateKey, name: str, now: datetime, days: float) -> x509.Certificate:
    """A self-signed certificate that may sign leaf certificates and revocation lists, and nothing else."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _builder(subject, subject, key.public_key(), key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def leaf_certificate(
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
    public_key: ec.EllipticCurvePublicKey,
    *,
    name: str,
    role: Role,
    hosts: Iterable[x509.GeneralName],
    now: datetime,
    until: datetime,
) -> x509.Certificate:
    """A certificate for one node, client, broker or administrator."""
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role == "node":
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    uri = x509.UniformResourceIdentifier(f"{_SCHEME}{role}:{name}")
    return (
        _builder(subject, issuer.subject, public_key, issuer_key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([uri, *hosts]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def revocation_list(
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
    revoked: Iterable[tuple[int, datetime]],
    number: int,
    now: datetime,
) -> x509.CertificateRevocationList:
    """A list of (serial, when). It holds as long as the authority: a forgotten renewal must not stop a mesh."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - CLOCK_SKEW)
        .next_update(issuer.not_valid_after_utc)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, when in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(issuer_key, hashes.SHA256())


def host_name(text: str) -> x509.GeneralName:
    """A DNS name or IP address for the subject alternative names; ConfigError if it is neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.removeprefix("*.").split(".")):
        return x509.DNSName(text)
    raise ConfigError(f"{text[:80]!r} is neither a host name nor an IP address")


def hosts_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """Its DNS names and IP addresses."""
    return [name for name in _alternative_names(certificate) if isinstance(name, x509.DNSName | x509.IPAddress)]


def identity_of(certificate: x509.Certificate | bytes) -> Identity:
    """Who a certificate (or its DER bytes) is for; RefusedError if it is not one of this project.

    It reads, it does not verify: give it only what a TLS handshake has verified.
    """
    if isinstance(certificate, bytes):
        try:
            certificate = x509.load_der_x509_certificate(certificate)
        except ValueError as error:
            raise RefusedError(f"the certificate cannot be read: {error}") from None
    uris = [
        name.value
        for name in _alternative_names(certificate)
        if isinstance(name, x509.UniformResourceIdentifier) and name.value.startswith(_SCHEME)
    ]
    if len(uris) != 1:
        found = "none" if not uris else f"{len(uris)} of them"
        raise RefusedError(
            f"the certificate of {certificate.subject.rfc4514_string()!r} must have one alternative name like "
            f"'chappe:node:NAME', and has {found}; issue it with `chappe cert`"
        )
    role, _, name = uris[0].removeprefix(_SCHEME).partition(":")
    for known in ROLES:
        if role == known:
            try:
                return Identity(
                    name=name,
                    role=known,
                    how="certificate",
                    expires_ns=int(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000,
                    fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
                    serial=f"{certificate.serial_number:x}",
                    certificate=certificate.public_bytes(serialization.Encoding.DER),
                )
            except ValueError as error:
                raise RefusedError(f"the certificate names {error}") from None
    raise RefusedError(f"the certificate has the role {role[:40]!r}; roles are {', '.join(ROLES)}")


def issued_by_one(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """Whether one of these authorities signed it."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def utc(now_ns: int) -> datetime:
    """A wall clock reading as X.509 wants it: whole seconds."""
    return datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)


def _alternative_names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
    except ValueError as error:
        raise RefusedError(f"the extensions of the certificate cannot be read: {error}") from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
