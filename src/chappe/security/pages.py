"""Who may see the pages of a process: `[metrics]` of nodes and archives."""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chappe.errors import ConfigError
from chappe.security import files
from chappe.security.config import under

LEAST_BYTES = 16  # of a token: shorter ones are guessed


class PageAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[metrics]`: where /metrics, /health, /ready and other pages are served, and to whom.

    Off loopback they are served by TLS to those who prove who they are, unless the file says `insecure`.
    """

    address: str = ""  # host:port; empty: nowhere
    cert: str = ""  # certificate and
    key: str = ""  # private key of the page (PEM): then it is served by TLS
    token: str = ""  # file with a secret that viewers bring: `Authorization: Bearer`, or as the password of a browser
    client_ca: str = ""  # authority whose certificates viewers may show in its place (PEM)
    insecure: bool = False  # serve off loopback without that, to everybody

    @property
    def proves(self) -> bool:
        """Whether viewers prove who they are."""
        return bool(self.token or self.client_ca)

    def resolved(self, base: Path) -> PageAccess:
        """The same with paths taken relative to `base`."""
        paths = {name: under(base, getattr(self, name)) for name in ("cert", "key", "token", "client_ca")}
        return msgspec.structs.replace(self, **paths)

    def problems(self, loopback: bool) -> Iterator[str]:
        """What is wrong with it, where `address` is on loopback or not."""
        if bool(self.cert) != bool(self.key):
            yield "metrics: `cert` and `key` belong together"
        if self.client_ca and not self.cert:
            yield "metrics.client_ca: certificates are shown by TLS alone; set `cert` and `key`"
        if not self.address or loopback or self.insecure:
            return
        if not self.cert:
            yield "metrics.address: off loopback the page needs TLS: set `cert` and `key`, or say `insecure = true`"
        elif not self.proves:
            yield (
                "metrics.address: off loopback viewers must prove who they are: set `token` or `client_ca`, "
                "or say `insecure = true`"
            )

    def context(self) -> ssl.SSLContext | None:
        """For the accepting side, None without TLS; ConfigError names the file that is wrong."""
        if not self.cert:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        path = f"{self.cert} with {self.key}"
        try:
            context.load_cert_chain(self.cert, self.key, password=str)
            if self.client_ca:
                path = self.client_ca
                context.load_verify_locations(cafile=self.client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL if self.token else ssl.CERT_REQUIRED
        except OSError as error:
            raise ConfigError(f"metrics: {path}: {error.strerror or error}") from None
        return context

    def secret(self) -> bytes:
        """The token, read anew so that it may change; ConfigError names the file and its fault."""
        found = files.read(self.token, "the token of the page").strip()
        if len(found) < LEAST_BYTES:
            raise ConfigError(f"{self.token}: a token has {LEAST_BYTES} bytes or more; `openssl rand -hex 32`")
        return found

    def admits(self, authorization: str, certificate: bool) -> bool:
        """Whether a viewer is let in, by what it sends and whether it has shown a certificate."""
        if not self.proves or (certificate and self.client_ca):
            return True
        return bool(self.token) and hmac.compare_digest(_brought(authorization), self.secret())


def _brought(authorization: str) -> bytes:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
