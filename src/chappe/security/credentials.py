"""The credentials of a running process: built from files, rebuilt on request, never left half changed."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from chappe.errors import ConfigError, RefusedError
from chappe.security import tls as contexts
from chappe.security.certificates import issued_by_one, utc
from chappe.security.config import Tls, Tokens
from chappe.security.identity import Identity
from chappe.security.tokens import TokenVerifier


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Everything that was read together."""

    material: contexts.Material | None
    server: ssl.SSLContext | None
    client: ssl.SSLContext | None
    tokens: TokenVerifier | None


class Credentials:
    """What a node or client shows and believes; `reload()` on SIGHUP reads the same files again.

    `server` stays the same object for ever, so that listening sockets keep it: at each handshake it hands over to the
    newest context. Connections that exist are not touched; ask `lapsed` whether theirs should end.
    """

    def __init__(
        self, tls: Tls | None, tokens: Tokens | None = None, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._tls, self._tokens, self._clock_ns = tls, tokens, clock_ns
        self._now = self._read()
        self._withdrawn: tuple[x509.Certificate, ...] = ()  # authorities that this process believed before
        self._front: ssl.SSLContext | None = None
        if tls is not None and self._now.server is not None:
            self._front = contexts.server_context(tls)
            self._front.sni_callback = self._hand_over

    def reload(self) -> None:
        """Read every file again; on any fault ConfigError names it and the old credentials stay in use."""
        new = self._read()
        old = self.own
        own = new.material.own if new.material else None
        if old and own and (old.name, old.role) != (own.name, own.role):
            where = self._tls.cert if self._tls else "[tls]"
            raise ConfigError(f"{where}: now for {own}, and this process runs as {old}; restart it")
        believed = (*self.authorities, *self._withdrawn)
        self._now = new
        self._withdrawn = tuple(each for each in dict.fromkeys(believed) if each not in self.authorities)

    @property
    def server(self) -> ssl.SSLContext:
        """For listening sockets; always shows and believes what was loaded last."""
        if self._front is None:
            raise ConfigError(
                "[tls] needs `cert` and `key` of a node to listen; `chappe cert node DIR NAME` makes them"
            )
        return self._front

    @property
    def client(self) -> ssl.SSLContext:
        """For the next connection; ask again for each."""
        if self._now.client is None:
            raise ConfigError("there is no [tls] section: add one, with at least `ca`")
        return self._now.client

    @property
    def own(self) -> Identity | None:
        """Who this side is, by its certificate."""
        return self._now.material.own if self._now.material else None

    @property
    def key(self) -> PrivateKeyTypes | None:
        """The private key of the own certificate."""
        return self._now.material.key if self._now.material else None

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Those that are believed now; another object after each reload."""
        return self._now.material.authorities if self._now.material else ()

    def identify(self, role: str, name: str, certificate: Identity | None, token: str | None) -> Identity:
        """Who says hello with this role and name; RefusedError says what is missing.

        A node needs a certificate for the name it gives. A client is whom its token names, or else its certificate;
        a token that came is never ignored, so that a bad one is noticed.
        """
        identity = self._claimed(role, name, certificate, token)
        if why := self.lapsed(identity):
            raise RefusedError(why)
        return identity

    def _claimed(self, role: str, name: str, certificate: Identity | None, token: str | None) -> Identity:
        if role == "node":
            return contexts.expect(certificate, "node", name)
        if role != "client":
            raise RefusedError(f"unknown role {role[:40]!r}; it is 'client' or 'node'")
        if token is not None:
            if self._now.tokens is None:
                raise RefusedError("this node takes no tokens: it has no [tokens] section; come with a certificate")
            identity = self._now.tokens.verify(token, self._clock_ns())
        elif certificate is not None:
            identity = certificate
        else:
            ways = "a certificate or a token" if self._now.tokens else "a certificate"
            raise RefusedError(f"client '{name[:80]}' must bring {ways}")
        if identity.role == "node":
            raise RefusedError(f"the certificate is for {identity}; a client needs its own (`chappe cert client`)")
        return identity

    def lapsed(self, identity: Identity) -> str | None:
        """Why an identity that was believed once is not any more (expired, revoked, its authority removed), or None."""
        now_ns = self._clock_ns()
        if identity.expires_ns is not None and now_ns >= identity.expires_ns + self._leeway_ns(identity):
            return f"the {identity.how} of {identity} has expired"
        if identity.how == "certificate" and self._now.material and identity.serial in self._now.material.revoked:
            return f"the certificate of {identity} is revoked"
        if identity.certificate and self._withdrawn:
            certificate = x509.load_der_x509_certificate(identity.certificate)
            if issued_by_one(certificate, self._withdrawn) and not issued_by_one(certificate, self.authorities):
                return f"the authority that issued the certificate of {identity} is not believed any more"
        if identity.how == "token":
            return self._now.tokens.lapsed(identity) if self._now.tokens else "this node takes no tokens any more"
        return None

    def revoked(self, serial: str) -> bool:
        """Whether a certificate of that serial number is revoked."""
        return self._now.material is not None and serial in self._now.material.revoked

    def _leeway_ns(self, identity: Identity) -> int:
        return self._tokens.leeway_s * 1_000_000_000 if self._tokens and identity.how == "token" else 0

    def _read(self) -> _Loaded:
        tokens = TokenVerifier(self._tokens) if self._tokens else None
        if self._tls is None:
            return _Loaded(None, None, None, tokens)
        material = contexts.material(self._tls, utc(self._clock_ns()))
        serves = material.own is not None and material.own.role == "node"
        server = contexts.server_context(self._tls) if serves else None
        return _Loaded(material, server, contexts.client_context(self._tls), tokens)

    def _hand_over(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        # OpenSSL takes certificate, authorities and revocation lists from the context set here, before it needs them.
        if self._now.server is not None:
            connection.context = self._now.server
