"""Statements of the mesh: believed from whom the authority named, as they were made, and from nobody else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from chappe.runtime.mesh.signing import Signer, Verifier
from chappe.security.authority import Authority
from chappe.security.certificates import leaf_certificate
from chappe.security.config import Tls
from chappe.security.credentials import Credentials

TEXT = b"link a - b costs 3 ms"


class Mesh:
    """An authority and what it issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder, datetime.now(UTC))

    def credentials(self, name: str, role: str = "node") -> Credentials:
        return Credentials(self.tls(name, role))

    def tls(self, name: str, role: str = "node") -> Tls:
        if not (self.folder / f"{name}.pem").exists():
            hosts = ["127.0.0.1"] if role == "node" else []
            self.authority.issue(name, role, datetime.now(UTC), hosts=hosts)  # type: ignore[arg-type]
        where = self.folder
        return Tls(ca=f"{where}/ca.pem", cert=f"{where}/{name}.pem", key=f"{where}/{name}.key", crl=f"{where}/ca.crl")

    def verifier(self) -> Verifier:
        return Verifier(self.credentials("a"))


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    return Mesh(tmp_path)


def test_a_statement_is_believed_from_its_node_and_no_other_and_only_as_it_was_made(mesh: Mesh) -> None:
    sign, verify = Signer(mesh.credentials("a")), mesh.verifier()
    signature = sign(TEXT)
    assert verify("a", TEXT, signature)
    assert verify("a", TEXT, signature)  # by the certificate that is known now
    assert not verify("b", TEXT, signature)
    assert not verify("a", TEXT + b"0", signature)
    assert not verify("a", TEXT, signature[:-1] + bytes((signature[-1] ^ 1,)))
    assert not verify("a", TEXT, b"")
    assert not verify("a", TEXT, b"\x93")
    assert not verify("a", TEXT, msgspec.msgpack.encode([b"no certificate", b"no signature"]))


def test_a_certificate_of_another_authority_a_client_or_a_revoked_one_is_not_believed(
    mesh: Mesh, tmp_path: Path
) -> None:
    credentials = mesh.credentials("a")
    verify = Verifier(credentials)
    other = Mesh(tmp_path / "other")
    assert not verify("a", TEXT, Signer(other.credentials("a"))(TEXT))
    assert not verify("meter", TEXT, Signer(mesh.credentials("meter", "client"))(TEXT))
    signature = Signer(mesh.credentials("b"))(TEXT)
    assert verify("b", TEXT, signature)
    mesh.authority.revoke("b", datetime.now(UTC))
    credentials.reload()
    assert not verify("b", TEXT, signature)


def test_an_expired_certificate_is_not_believed_any_more(mesh: Mesh) -> None:
    now_ns = [datetime.now(UTC).timestamp() * 1e9]
    verify = Verifier(mesh.credentials("a"), lambda: int(now_ns[0]))
    signature = Signer(mesh.credentials("a"))(TEXT)
    assert verify("a", TEXT, signature)
    now_ns[0] += 100 * 365 * 86_400 * 1e9
    assert not verify("a", TEXT, signature)


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_other_kinds_of_keys_sign_as_well(mesh: Mesh, kind: str) -> None:
    key = ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else rsa.generate_private_key(65537, 2048)
    tls = mesh.tls("a")
    authority = x509.load_pem_x509_certificate(Path(tls.ca).read_bytes())
    authority_key = serialization.load_pem_private_key((mesh.folder / "ca.key").read_bytes(), None)
    certificate = leaf_certificate(
        authority, authority_key, key.public_key(), name="z", role="node", hosts=[],  # type: ignore[arg-type]
        now=datetime.now(UTC), until=authority.not_valid_after_utc,
    )  # fmt: skip
    (mesh.folder / "z.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (mesh.folder / "z.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    signature = Signer(mesh.credentials("z"))(TEXT)
    assert mesh.verifier()("z", TEXT, signature)
    assert not mesh.verifier()("z", TEXT[1:], signature)
