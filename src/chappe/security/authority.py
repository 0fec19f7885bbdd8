"""The project's own certificate authority: a folder.

ca.pem  ca.key  ca.crl      the authority, its key (keep it off the nodes) and its revocation list
NAME.pem  NAME.key          the newest certificate and the key of each node or client
issued/SERIAL.pem           every certificate ever issued, so that all of a name can be revoked
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chappe.errors import ConfigError
from chappe.security import certificates, files
from chappe.security.config import Role
from chappe.security.identity import checked_name

CA_DAYS, NODE_DAYS, CLIENT_DAYS = 3650.0, 365.0, 90.0


class Authority:
    """Issues, renews and revokes certificates in one folder; every change is on disk when a call returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = load_key(folder / "ca.key")
        self.certificate = load_certificate(folder / "ca.pem")
        if self._key.public_key() != self.certificate.public_key():
            raise ConfigError(f"{folder}: ca.key is not the key of ca.pem")

    @classmethod
    def create(cls, folder: Path, now: datetime, *, name: str = "Chappe authority", days: float = CA_DAYS) -> Authority:
        """A new authority in a new or empty folder; one that exists is left alone."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "issued").mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
        with files.locked(folder):
            for taken in ("ca.key", "ca.pem", "ca.crl"):
                if (folder / taken).exists():
                    raise ConfigError(f"{folder / taken} exists already: there is an authority, nothing was changed")
            key = certificates.new_key()
            certificate = certificates.authority_certificate(key, name, now, days)
            files.write(folder / "ca.key", certificates.key_pem(key), files.PRIVATE)
            files.write(folder / "ca.pem", certificates.pem(certificate))
            files.write(folder / "ca.crl", certificates.pem(certificates.revocation_list(certificate, key, (), 1, now)))
        return cls(folder)

    def issue(
        self,
        name: str,
        role: Role,
        now: datetime,
        *,
        hosts: Iterable[str] = (),
        days: float | None = None,
        replace: bool = False,
    ) -> x509.Certificate:
        """A certificate and key in NAME.pem and NAME.key; a node's own name is always among its host names."""
        if checked_name(name) == "ca":
            raise ConfigError("'ca' is the name of the authority itself; choose another")
        known = [certificates.host_name(host) for host in dict.fromkeys([*([name] if role == "node" else []), *hosts])]
        lifetime = timedelta(days=days or (NODE_DAYS if role == "node" else CLIENT_DAYS))
        key = certificates.new_key()
        with files.locked(self.folder):
            if not replace:
                for path in (self.folder / f"{name}.key", self.folder / f"{name}.pem"):
                    if path.exists():
                        raise ConfigError(f"{path} exists already and is kept; renew it, or ask to replace it")
            certificate = self._sign(key.public_key(), name, role, known, now, now + lifetime)
            files.write(self.folder / f"{name}.key", certificates.key_pem(key), files.PRIVATE, replace=replace)
            files.write(self.folder / f"{name}.pem", certificates.pem(certificate), replace=replace)
        return certificate

    def renew(
        self, name: str, now: datetime, *, before: timedelta | None = None, new_key: bool = False
    ) -> x509.Certificate | None:
        """The next certificate of that name, for as long as the last; None if it lasts longer than `before`.

        With the same key only NAME.pem changes, in one step. The name `ca` renews the authority, which keeps its key.
        """
        with files.locked(self.folder):
            old = load_certificate(self.folder / f"{checked_name(name)}.pem")
            if before is not None and old.not_valid_after_utc - now > before:
                return None
            lifetime = old.not_valid_after_utc - old.not_valid_before_utc - certificates.CLOCK_SKEW
            if name == "ca":
                return self._renew_authority(now, lifetime)
            if old.serial_number in self.revoked():
                raise ConfigError(f"{name} is revoked and not renewed; issue a new certificate with a new key instead")
            identity = certificates.identity_of(old)
            key = certificates.new_key() if new_key else load_key(self.folder / f"{name}.key")
            certificate = self._sign(
                key.public_key(), identity.name, identity.role, certificates.hosts_of(old), now, now + lifetime
            )
            if new_key:
                files.write(self.folder / f"{name}.key", certificates.key_pem(key), files.PRIVATE, replace=True)
            files.write(self.folder / f"{name}.pem", certificates.pem(certificate), replace=True)
            return certificate

    def revoke(self, name: str, now: datetime) -> list[x509.Certificate]:
        """Every certificate of that name that is still valid, now in ca.crl; ConfigError if there is none."""
        with files.locked(self.folder):
            known = self.revoked()
            found = [
                certificate
                for certificate in self.issued()
                if certificates.identity_of(certificate).name == name
                and certificate.serial_number not in known
                and certificate.not_valid_after_utc > now
            ]
            if not found:
                raise ConfigError(f"{self.folder} has no valid certificate of {name!r} that is not revoked already")
            known.update({certificate.serial_number: now for certificate in found})
            self._write_list(known, now)
        return found

    def issued(self) -> Iterator[x509.Certificate]:
        """Every certificate ever issued here, in the order of its file names."""
        for path in sorted((self.folder / "issued").glob("*.pem")):
            yield load_certificate(path)

    def names(self) -> list[str]:
        """Names that have a certificate in this folder."""
        return sorted(path.stem for path in self.folder.glob("*.pem") if path.stem != "ca")

    def revoked(self) -> dict[int, datetime]:
        """Serial numbers in ca.crl, with the time of their revocation."""
        return {entry.serial_number: entry.revocation_date_utc for entry in load_list(self.folder / "ca.crl")}

    def _sign(
        self,
        public_key: ec.EllipticCurvePublicKey,
        name: str,
        role: Role,
        hosts: list[x509.GeneralName],
        now: datetime,
        until: datetime,
    ) -> x509.Certificate:
        if self.certificate.not_valid_after_utc <= now:
            raise ConfigError(f"{self.folder / 'ca.pem'} has expired; renew the name 'ca', give the file to every node")
        certificate = certificates.leaf_certificate(
            self.certificate,
            self._key,
            public_key,
            name=name,
            role=role,
            hosts=hosts,
            now=now,
            until=min(until, self.certificate.not_valid_after_utc),
        )
        (self.folder / "issued").mkdir(exist_ok=True)
        files.write(self.folder / "issued" / f"{certificate.serial_number:040x}.pem", certificates.pem(certificate))
        return certificate

    def _renew_authority(self, now: datetime, lifetime: timedelta) -> x509.Certificate:
        name = self.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
        days = lifetime / timedelta(days=1)
        certificate = certificates.authority_certificate(self._key, str(name), now, days)
        files.write(self.folder / "ca.pem", certificates.pem(certificate), replace=True)
        self.certificate = certificate
        self._write_list(self.revoked(), now)
        return certificate

    def _write_list(self, revoked: dict[int, datetime], now: datetime) -> None:
        old = load_list(self.folder / "ca.crl")
        number = old.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number + 1
        new = certificates.revocation_list(self.certificate, self._key, revoked.items(), number, now)
        files.write(self.folder / "ca.crl", certificates.pem(new), replace=True)


def load_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file; ConfigError names the file."""
    try:
        return x509.load_pem_x509_certificate(files.read(path, "the certificate"))
    except ValueError:
        raise ConfigError(f"{path}: there is no certificate in PEM form in it") from None


def load_list(path: Path) -> x509.CertificateRevocationList:
    """The revocation list of a PEM file; ConfigError names the file."""
    try:
        return x509.load_pem_x509_crl(files.read(path, "the revocation list"))
    except ValueError:
        raise ConfigError(f"{path}: there is no revocation list in PEM form in it") from None


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key of a PEM file; ConfigError names the file and says nothing of its content."""
    try:
        key = serialization.load_pem_private_key(files.read(path, "the private key"), password=None)
    except TypeError:
        raise ConfigError(f"{path}: the private key is encrypted; remove its passphrase") from None
    except ValueError:
        raise ConfigError(f"{path}: there is no private key in PEM form in it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path}: the private key is no elliptic curve key; `chappe cert` makes EC P-256 keys")
    return key
