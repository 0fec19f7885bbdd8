"""TLS contexts from files, and the identity at the other end of a connection.

Every file is checked before a context is built, so that an error names the file and its fault instead of an OpenSSL
code. Between nodes both sides show certificates; a client may come without one if it brings a token.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from chappe.errors import ConfigError, RefusedError
from chappe.security import files
from chappe.security.certificates import identity_of, issued_by_one
from chappe.security.config import Role, Tls
from chappe.security.identity import Identity

_DAY = "%Y-%m-%d %H:%M UTC"
_CRL_BLOCK = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)


class Handshaken(Protocol):
    """`ssl.SSLSocket` or `ssl.SSLObject` (`transport.get_extra_info("ssl_object")`) after its handshake."""

    @property
    def context(self) -> ssl.SSLContext: ...
    @property
    def session_reused(self) -> bool | None: ...
    def getpeercert(self, binary_form: bool = False, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Material:
    """What the files of a `[tls]` section hold, checked."""

    own: Identity | None
    expires: datetime | None  # of the own certificate
    revoked: frozenset[str]  # serial numbers in hex
    authorities: tuple[x509.Certificate, ...] = ()
    key: PrivateKeyTypes | None = None  # of the own certificate


def material(config: Tls, now: datetime) -> Material:
    """Read and check every file; ConfigError names the first that is wrong, and why."""
    authorities = _authorities(config.ca, now)
    revoked = _revoked(config, authorities, now) if config.crl else frozenset[str]()
    if not config.cert:
        return Material(None, None, revoked, authorities)
    certificate = _first_certificate(config.cert)
    if certificate.not_valid_after_utc <= now:
        raise ConfigError(f"{config.cert}: expired on {certificate.not_valid_after_utc:{_DAY}}; `chappe cert renew`")
    if certificate.not_valid_before_utc > now:
        raise ConfigError(f"{config.cert}: not valid before {certificate.not_valid_before_utc:{_DAY}}; check the clock")
    if not issued_by_one(certificate, authorities):
        raise ConfigError(f"{config.cert}: not issued by an authority in {config.ca}")
    try:
        own = identity_of(certificate)
    except RefusedError as error:
        raise ConfigError(f"{config.cert}: {error}") from None
    if own.serial in revoked:
        raise ConfigError(f"{config.cert}: revoked by {config.crl}; issue a new one")
    return Material(own, certificate.not_valid_after_utc, revoked, authorities, _key_of(config.key, certificate))


def server_context(config: Tls, *, require_certificate: bool | None = None) -> ssl.SSLContext:
    """For the accepting side: asks for a certificate, demands it if asked to or if the configuration says so."""
    if not config.cert:
        raise ConfigError("[tls] needs `cert` and `key` on a node: make them with `chappe cert node DIR NAME`")
    required = config.client_certificates == "required" if require_certificate is None else require_certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    # A resumed session is not verified again; without tickets a certificate revoked meanwhile cannot come back.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return _load(context, config)


def client_context(config: Tls) -> ssl.SSLContext:
    """For the connecting side: always verifies the node, shows the own certificate if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.verify_host
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_COMPRESSION
    return _load(context, config)


def peer_identity(connection: Handshaken) -> Identity | None:
    """Who the other side's verified certificate is for; None if it showed none, RefusedError if it is not ours."""
    if connection.context.verify_mode == ssl.CERT_NONE:
        raise RefusedError("this connection does not verify certificates, so the other side's proves nothing")
    if connection.session_reused:  # TLS 1.2 still can, from OpenSSL's own cache that Python cannot turn off
        raise RefusedError("the TLS session was resumed, so no certificate was verified; connect without a session")
    der = connection.getpeercert(True)
    return identity_of(der) if isinstance(der, bytes) and der else None


def expect(identity: Identity | None, role: Role, name: str | None = None) -> Identity:
    """The identity if it has this role (and name); RefusedError says what was expected and what came."""
    wanted = f"{role} '{name}'" if name else f"a {role}"
    if identity is None:
        raise RefusedError(f"expected {wanted}, and no certificate came; issue one with `chappe cert {role}`")
    if identity.role != role:
        raise RefusedError(f"expected {wanted}, and the {identity.how} is for {identity}")
    if name is not None and identity.name != name:
        raise RefusedError(f"expected {wanted}, and the {identity.how} is for {identity}")
    return identity


_CAUSES = {
    "certificate has expired": "its certificate has expired; renew it with `chappe cert renew`",
    "alert certificate expired": "it says our certificate has expired; renew it with `chappe cert renew`",
    "certificate is not yet valid": "its certificate is not valid yet; compare the clocks",
    "alert certificate revoked": "it says our certificate is revoked; issue a new one with a new key",
    "certificate revoked": "its certificate is revoked",
    "crl has expired": "the revocation list has expired; renew the authority and give out ca.crl",
    "unable to get certificate crl": "our `crl` file has no list of its authority; add that ca.crl to it",
    "self-signed certificate": "its certificate is not issued by an authority in our `ca` file",
    "self signed certificate": "its certificate is not issued by an authority in our `ca` file",
    "unable to get local issuer": "its certificate is not issued by an authority in our `ca` file",
    "certificate signature failure": "its certificate is not issued by an authority in our `ca` file",
    "alert unknown ca": "it does not believe our certificate: issued by an authority that is not in its `ca` file",
    "unsuitable certificate purpose": "its certificate is a client's, not a node's; use `chappe cert node`",
    "unsupported certificate purpose": "its certificate is a client's, not a node's; use `chappe cert node`",
    "hostname mismatch": "its certificate is for other host names; issue it with `--san` for the one dialled",
    "ip address mismatch": "its certificate is for other addresses; issue it with `--san` for the one dialled",
    "peer did not return a certificate": "it showed no certificate, and one is required",
    "alert certificate required": "it requires a certificate, and we showed none; set `cert` and `key`",
    "alert bad certificate": "it refused our certificate",
    "eof occurred": "it closed the connection during the handshake; its log says why",
    "wrong version number": "it does not speak TLS",
    "http request": "it speaks plain HTTP, not TLS",
    "unsupported protocol": "it speaks only an older TLS version than `minimum`",
    "alert protocol version": "it speaks only other TLS versions than we do",
}


def handshake_reason(error: ssl.SSLError) -> str:
    """Why a handshake failed, in words that say which side must change what; "it" is the other side."""
    text = f"{getattr(error, 'verify_message', '')} {error}".lower().replace("_", " ")
    for sign, cause in _CAUSES.items():
        if sign in text:
            return cause
    return f"TLS failed: {getattr(error, 'verify_message', '') or error.reason or error}"


def _load(context: ssl.SSLContext, config: Tls) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if config.minimum == "1.2" else ssl.TLSVersion.TLSv1_3
    path = config.ca
    try:
        context.load_verify_locations(cafile=config.ca)
        if config.crl:
            path = config.crl
            context.load_verify_locations(cafile=config.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if config.cert:
            path = f"{config.cert} with {config.key}"
            context.load_cert_chain(config.cert, config.key, password=_no_passphrase)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    return context


def _no_passphrase() -> str:
    """Instead of OpenSSL asking on the terminal of a service."""
    return ""


def _authorities(path: str, now: datetime) -> tuple[x509.Certificate, ...]:
    try:
        found = x509.load_pem_x509_certificates(files.read(path, "the authority's certificate"))
    except ValueError:
        raise ConfigError(f"{path}: there is no certificate in PEM form in it") from None
    if all(certificate.not_valid_after_utc <= now for certificate in found):
        raise ConfigError(
            f"{path}: every authority in it has expired; `chappe cert renew DIR ca`, and give it to all nodes"
        )
    return tuple(found)


def _first_certificate(path: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(files.read(path, "the certificate"))
    except ValueError:
        raise ConfigError(f"{path}: there is no certificate in PEM form in it") from None


def _key_of(path: str, certificate: x509.Certificate) -> PrivateKeyTypes:
    try:
        key = serialization.load_pem_private_key(files.read(path, "the private key"), password=None)
    except TypeError:
        raise ConfigError(f"{path}: the private key is encrypted; remove its passphrase") from None
    except ValueError:
        raise ConfigError(f"{path}: there is no private key in PEM form in it") from None
    if key.public_key() != certificate.public_key():
        raise ConfigError(f"{path}: not the private key of the certificate of {certificate.subject.rfc4514_string()}")
    return key


def _revoked(config: Tls, authorities: tuple[x509.Certificate, ...], now: datetime) -> frozenset[str]:
    blocks = _CRL_BLOCK.findall(files.read(config.crl, "the revocation list"))
    if not blocks:
        raise ConfigError(f"{config.crl}: there is no revocation list in PEM form in it")
    serials: set[str] = set()
    for block in blocks:
        try:
            listed = x509.load_pem_x509_crl(block)
        except ValueError as error:
            raise ConfigError(f"{config.crl}: the revocation list cannot be read: {error}") from None
        if not any(_signed_by(listed, authority) for authority in authorities):
            raise ConfigError(f"{config.crl}: not signed by an authority in {config.ca}")
        if listed.next_update_utc is not None and listed.next_update_utc <= now:
            raise ConfigError(f"{config.crl}: expired on {listed.next_update_utc:{_DAY}}; `chappe cert renew DIR ca`")
        serials.update(f"{entry.serial_number:x}" for entry in listed)
    return frozenset(serials)


def _signed_by(listed: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return listed.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except TypeError:
        return False
