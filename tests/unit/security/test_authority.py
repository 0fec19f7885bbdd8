"""The certificate authority: what it writes, what it refuses, how it renews and revokes."""

from __future__ import annotations

import ipaddress
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from chappe.errors import ConfigError, RefusedError
from chappe.security import Authority, client_context, identity_of, server_context
from chappe.security.authority import load_certificate, load_list
from chappe.security.certificates import authority_certificate, hosts_of, leaf_certificate, new_key
from tests.unit.security.conftest import Connect, Mesh, now


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_for_their_owner_alone_and_no_temporary_file_stays(mesh: Mesh) -> None:
    folder = mesh.authority.folder
    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.glob("*.key")} == {0o600}
    assert len(list(folder.glob("*.key"))) == 5
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["west", "pmu-1"])
def test_nothing_is_overwritten_silently(mesh: Mesh, name: str) -> None:
    folder = mesh.authority.folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=f"{name}.key exists already"):
        mesh.authority.issue(name, "client", now())
    with pytest.raises(ConfigError, match="there is an authority, nothing was changed"):
        Authority.create(folder, now())
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_certificates_pass_the_strict_verifier_of_another_library(mesh: Mesh) -> None:
    folder = mesh.authority.folder
    builder = PolicyBuilder().store(Store([load_certificate(folder / "ca.pem")]))
    west = load_certificate(folder / "west.pem")
    builder.build_server_verifier(x509.DNSName("west")).verify(west, [])
    builder.build_server_verifier(x509.IPAddress(ipaddress.ip_address("127.0.0.1"))).verify(west, [])
    builder.build_client_verifier().verify(load_certificate(folder / "pmu-1.pem"), [])


def test_a_certificate_says_its_role_and_serves_only_for_nodes(mesh: Mesh) -> None:
    folder = mesh.authority.folder
    for name, role, purposes in (("west", "node", 2), ("pmu-1", "client", 1), ("leaf", "broker", 1)):
        certificate = load_certificate(folder / f"{name}.pem")
        assert (identity_of(certificate).name, identity_of(certificate).role) == (name, role)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert len(usage) == purposes
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) is (role == "node")


@pytest.mark.parametrize(
    ("name", "hosts", "why"),
    [
        ("ca", [], "name of the authority"),
        ("../x", [], "not a name"),
        ("a/b", [], "not a name"),
        ("", [], "not a name"),
        ("north", ["bad host"], "neither a host name nor an IP address"),
        ("north", ["a..b"], "neither a host name nor an IP address"),
    ],
)
def test_bad_names_are_refused_and_leave_nothing(mesh: Mesh, name: str, hosts: list[str], why: str) -> None:
    before = sorted(mesh.authority.folder.parent.rglob("*"))
    with pytest.raises(ConfigError, match=why):
        mesh.authority.issue(name, "node", now(), hosts=hosts)
    assert sorted(mesh.authority.folder.parent.rglob("*")) == before


@pytest.mark.parametrize("new_key", [False, True])
def test_renewal_keeps_name_role_hosts_and_lifetime(mesh: Mesh, new_key: bool) -> None:
    folder = mesh.authority.folder
    old = load_certificate(folder / "west.pem")
    later = now() + timedelta(days=300)
    new = mesh.authority.renew("west", later, new_key=new_key)
    assert new == load_certificate(folder / "west.pem")
    assert new is not None
    assert hosts_of(new) == hosts_of(old)
    assert identity_of(new).role == "node"
    assert abs((new.not_valid_after_utc - later) - timedelta(days=365)) < timedelta(seconds=5)
    assert (new.public_key() == old.public_key()) is not new_key
    client_context(mesh.tls("west"))


def test_renewal_waits_until_it_is_due(mesh: Mesh) -> None:
    assert mesh.authority.renew("west", now(), before=timedelta(days=30)) is None
    assert mesh.authority.renew("west", now() + timedelta(days=340), before=timedelta(days=30)) is not None


def test_revocation_reaches_every_certificate_of_a_name(mesh: Mesh) -> None:
    first = load_certificate(mesh.authority.folder / "west.pem")
    second = mesh.authority.renew("west", now())
    revoked = mesh.authority.revoke("west", now())
    assert {certificate.serial_number for certificate in revoked} == {first.serial_number, second.serial_number}  # type: ignore[union-attr]
    assert set(mesh.authority.revoked()) == {certificate.serial_number for certificate in revoked}
    with pytest.raises(ConfigError, match="no valid certificate of 'west'"):
        mesh.authority.revoke("west", now())
    with pytest.raises(ConfigError, match="west is revoked and not renewed"):
        mesh.authority.renew("west", now())


def test_a_revoked_name_can_be_issued_again_with_a_new_key(mesh: Mesh, connect: Connect) -> None:
    mesh.authority.revoke("pmu-1", now())
    mesh.authority.issue("pmu-1", "client", now(), replace=True)
    connect(server_context(mesh.tls("west")), client_context(mesh.tls("pmu-1"))).established  # noqa: B018  asserts


def test_revocations_at_the_same_time_are_all_kept(mesh: Mesh) -> None:
    threads = [
        threading.Thread(target=lambda name=name: Authority(mesh.authority.folder).revoke(name, now()))  # type: ignore[misc]
        for name in ("west", "east", "pmu-1", "leaf")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = load_list(mesh.authority.folder / "ca.crl")
    assert len(listed) == 4
    assert listed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 5


def test_a_renewed_authority_still_vouches_for_what_it_issued(mesh: Mesh, connect: Connect) -> None:
    mesh.authority.revoke("leaf", now())
    old = mesh.authority.certificate
    new = mesh.authority.renew("ca", now() + timedelta(seconds=30))
    assert new is not None
    assert new.not_valid_after_utc > old.not_valid_after_utc
    connect(server_context(mesh.tls("west")), client_context(mesh.tls("east"))).established  # noqa: B018  asserts
    assert connect(server_context(mesh.tls("west")), client_context(mesh.tls("leaf"))).server_error


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "short", now(), days=10)
    certificate = authority.issue("west", "node", now())
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc
    with pytest.raises(ConfigError, match="has expired; renew the name 'ca'"):
        authority.issue("east", "node", now() + timedelta(days=11))


def test_a_folder_that_is_no_authority_is_named(tmp_path: Path, mesh: Mesh) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/ca\.key: the private key cannot be read: No such file"):
        Authority(tmp_path / "nowhere")
    folder = mesh.authority.folder
    (folder / "ca.key").write_bytes((folder / "west.key").read_bytes())
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of ca\.pem"):
        Authority(folder)


def test_a_certificate_that_is_not_of_this_project_is_refused(mesh: Mesh) -> None:
    with pytest.raises(RefusedError, match="must have one alternative name like 'chappe:node:NAME', and has none"):
        identity_of(mesh.authority.certificate)
    with pytest.raises(RefusedError, match="cannot be read"):
        identity_of(b"junk")


@pytest.mark.parametrize(
    ("uris", "why"),
    [
        (["chappe:admin:west"], "and has 2 of them"),
        (["chappe:node:west"], "and has 2 of them"),
        (["https://example.org/"], None),
    ],
)
def test_a_certificate_with_two_identities_has_none(uris: list[str], why: str | None) -> None:
    key = new_key()
    authority = authority_certificate(key, "x", now(), 10)
    hosts = [x509.UniformResourceIdentifier(uri) for uri in uris]
    certificate = leaf_certificate(
        authority,
        key,
        key.public_key(),
        name="west",
        role="node",
        hosts=hosts,
        now=now(),
        until=now() + timedelta(days=1),
    )
    if why is None:
        assert identity_of(certificate).name == "west"
    else:
        with pytest.raises(RefusedError, match=why):
            identity_of(certificate)
