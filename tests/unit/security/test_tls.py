"""Real TLS over loopback: who gets in, who does not, and whether both sides learn why."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import timedelta

import pytest

from chappe.errors import ConfigError, RefusedError
from chappe.security import client_context, expect, handshake_reason, peer_identity, server_context
from chappe.security.tls import material
from tests.unit.security.conftest import Connect, Mesh, now


@pytest.mark.spec("NS-012", "NS-073")
@pytest.mark.parametrize("minimum", ["1.3", "1.2"])
def test_two_nodes_prove_themselves_to_each_other(mesh: Mesh, connect: Connect, minimum: str) -> None:
    server = server_context(mesh.tls("west", minimum=minimum), require_certificate=True)
    client = client_context(mesh.tls("east", minimum=minimum, host=True))
    accepted, connected = connect(server, client, "127.0.0.1").established
    assert connected.version() == "TLSv1.3"
    east = expect(peer_identity(accepted), "node", "east")
    west = expect(peer_identity(connected), "node", "west")
    assert (east.how, west.how) == ("certificate", "certificate")
    assert east.fingerprint != west.fingerprint
    assert east.expires_ns is not None
    assert abs(east.expires_ns / 1e9 - (now() + timedelta(days=365)).timestamp()) < 60


def test_tls_1_2_is_spoken_only_if_both_sides_say_so(mesh: Mesh, connect: Connect) -> None:
    old = client_context(mesh.tls("east", minimum="1.2"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    accepted, _ = connect(server_context(mesh.tls("west", minimum="1.2")), old).established
    assert accepted.version() == "TLSv1.2"
    ends = connect(server_context(mesh.tls("west")), old)
    assert handshake_reason(ends.server_error) == "it speaks only an older TLS version than `minimum`"
    assert handshake_reason(ends.client_error) == "it speaks only other TLS versions than we do"


def test_a_client_may_come_without_certificate_where_it_is_optional(mesh: Mesh, connect: Connect) -> None:
    accepted, connected = connect(server_context(mesh.tls("west")), client_context(mesh.anonymous)).established
    assert peer_identity(accepted) is None
    assert expect(peer_identity(connected), "node").name == "west"
    with pytest.raises(RefusedError, match="expected node 'east', and no certificate came"):
        expect(peer_identity(accepted), "node", "east")


def test_a_required_certificate_that_does_not_come_is_named_on_both_sides(mesh: Mesh, connect: Connect) -> None:
    ends = connect(server_context(mesh.tls("west"), require_certificate=True), client_context(mesh.anonymous))
    assert handshake_reason(ends.server_error) == "it showed no certificate, and one is required"
    assert "it requires a certificate, and we showed none" in handshake_reason(ends.client_error)


def test_a_client_of_another_authority_is_refused(mesh: Mesh, other_mesh: Mesh, connect: Connect) -> None:
    stranger = client_context(other_mesh.tls("pmu-1", ca=mesh.authority.folder / "ca.pem"))
    ends = connect(server_context(mesh.tls("west")), stranger)
    assert handshake_reason(ends.server_error) == "its certificate is not issued by an authority in our `ca` file"
    assert "does not believe our certificate" in handshake_reason(ends.client_error)


def test_a_node_of_another_authority_is_refused(mesh: Mesh, other_mesh: Mesh, connect: Connect) -> None:
    ends = connect(server_context(other_mesh.tls("west")), client_context(mesh.tls("pmu-1")))
    assert handshake_reason(ends.client_error) == "its certificate is not issued by an authority in our `ca` file"
    assert "does not believe our certificate" in handshake_reason(ends.server_error)


@pytest.mark.parametrize("minimum", ["1.3", "1.2"])
def test_a_revoked_client_is_refused(mesh: Mesh, connect: Connect, minimum: str) -> None:
    client = client_context(mesh.tls("pmu-1", minimum=minimum))
    if minimum == "1.2":
        client.maximum_version = ssl.TLSVersion.TLSv1_2
    connect(server_context(mesh.tls("west", minimum=minimum)), client).established  # noqa: B018  asserts
    mesh.authority.revoke("pmu-1", now())
    ends = connect(server_context(mesh.tls("west", minimum=minimum)), client)
    assert handshake_reason(ends.server_error) == "its certificate is revoked"
    assert "it says our certificate is revoked" in handshake_reason(ends.client_error)


def test_a_revoked_node_is_refused_by_who_connects(mesh: Mesh, connect: Connect) -> None:
    server = server_context(mesh.tls("west"))
    mesh.authority.revoke("west", now())
    ends = connect(server, client_context(mesh.tls("east")))
    assert handshake_reason(ends.client_error) == "its certificate is revoked"


def test_an_expired_client_is_refused(mesh: Mesh, connect: Connect) -> None:
    mesh.authority.issue("late", "client", now() - timedelta(days=10), days=9)
    ends = connect(server_context(mesh.tls("west")), client_context(mesh.tls("late")))
    assert "its certificate has expired" in handshake_reason(ends.server_error)
    assert "it says our certificate has expired" in handshake_reason(ends.client_error)


def test_a_certificate_of_the_future_is_refused(mesh: Mesh, connect: Connect) -> None:
    mesh.authority.issue("early", "client", now() + timedelta(days=1))
    ends = connect(server_context(mesh.tls("west")), client_context(mesh.tls("early")))
    assert "compare the clocks" in handshake_reason(ends.server_error)


def test_a_client_certificate_does_not_make_a_node(mesh: Mesh, connect: Connect) -> None:
    accepted, _ = connect(server_context(mesh.tls("west")), client_context(mesh.tls("pmu-1"))).established
    with pytest.raises(RefusedError, match="expected node 'east', and the certificate is for client 'pmu-1'"):
        expect(peer_identity(accepted), "node", "east")


def test_a_client_certificate_cannot_serve(mesh: Mesh, connect: Connect) -> None:
    ends = connect(server_context(mesh.tls("pmu-1")), client_context(mesh.tls("east")))
    assert "its certificate is a client's, not a node's" in handshake_reason(ends.client_error)


def test_a_resumed_session_proves_nothing(mesh: Mesh) -> None:
    client = client_context(mesh.tls("pmu-1", minimum="1.2"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    server = server_context(mesh.tls("west", minimum="1.2"))
    first, _ = in_memory(server, client, None)
    second, accepted = in_memory(server, client, first.session)
    assert second.session_reused
    with pytest.raises(RefusedError, match="session was resumed"):
        peer_identity(accepted)


def test_tls_1_3_resumes_no_session(mesh: Mesh) -> None:
    client, server = client_context(mesh.tls("pmu-1")), server_context(mesh.tls("west"))
    first, _ = in_memory(server, client, None)
    second, accepted = in_memory(server, client, first.session)
    assert not second.session_reused
    assert expect(peer_identity(accepted), "client", "pmu-1")


def in_memory(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a handshake without sockets, the client first."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname="west", session=session),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    with suppress(ssl.SSLWantReadError):
        ends[0].read(1)  # takes a session ticket, if one came
    return ends


def test_a_node_under_another_name_is_refused(mesh: Mesh, connect: Connect) -> None:
    ends = connect(server_context(mesh.tls("east")), client_context(mesh.tls("pmu-1", host=True)), "localhost")
    assert "its certificate is for other host names" in handshake_reason(ends.client_error)
    ends = connect(server_context(mesh.tls("east")), client_context(mesh.tls("pmu-1", host=True)), "127.0.0.2")
    assert "its certificate is for other addresses" in handshake_reason(ends.client_error)


def test_a_node_can_be_dialled_by_its_own_name(mesh: Mesh, connect: Connect) -> None:
    _, connected = connect(
        server_context(mesh.tls("east")), client_context(mesh.tls("pmu-1", host=True)), "east"
    ).established
    assert expect(peer_identity(connected), "node", "east")


def test_who_speaks_no_tls_is_told_apart(mesh: Mesh) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = server_context(mesh.tls("west")).wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(b"CHAPPE\x01\x01" + bytes(64))
    with pytest.raises(ssl.SSLError) as caught:
        connection.do_handshake()
    assert handshake_reason(caught.value) == "it does not speak TLS"


def test_an_unverified_certificate_proves_nothing(mesh: Mesh, connect: Connect) -> None:
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    _, connected = connect(server_context(mesh.tls("west")), blind).established
    with pytest.raises(RefusedError, match="proves nothing"):
        peer_identity(connected)


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        ("ca.pem", b"no", "no certificate in PEM form"),
        ("ca.pem", None, "cannot be read: No such file"),
        ("west.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no certificate in PEM form"),
        ("west.key", b"no", "no private key in PEM form"),
        ("west.key", "east.key", "not the private key of the certificate of CN=west"),
        ("west.pem", "../other/west.pem", "not issued by an authority in"),
        ("ca.crl", b"", "no revocation list in PEM form"),
        ("ca.crl", "../other/ca.crl", "not signed by an authority in"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(
    mesh: Mesh, other_mesh: Mesh, file: str, change: bytes | str | None, why: str
) -> None:
    folder = mesh.authority.folder
    if change is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(change if isinstance(change, bytes) else (folder / change).read_bytes())
    with pytest.raises(ConfigError, match=why) as caught:
        material(mesh.tls("west"), now())
    assert str(caught.value).startswith(str(folder / file))


@pytest.mark.parametrize(("days", "why"), [(400, "expired on"), (-2, "not valid before"), (4000, "every authority")])
def test_files_out_of_their_time_are_named(mesh: Mesh, days: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        material(mesh.tls("west"), now() + timedelta(days=days))


def test_an_own_certificate_that_is_revoked_is_named(mesh: Mesh) -> None:
    mesh.authority.revoke("west", now())
    with pytest.raises(ConfigError, match=r"west\.pem: revoked by .*ca\.crl"):
        material(mesh.tls("west"), now())


def test_a_bundle_of_two_authorities_believes_both(mesh: Mesh, other_mesh: Mesh, connect: Connect) -> None:
    folder = mesh.authority.folder
    for file in ("ca.pem", "ca.crl"):
        both = (folder / file).read_bytes() + (other_mesh.authority.folder / file).read_bytes()
        (folder / file).write_bytes(both)
    material(mesh.tls("west"), now())
    stranger = client_context(other_mesh.tls("pmu-1", ca=folder / "ca.pem"))
    accepted, _ = connect(server_context(mesh.tls("west")), stranger).established
    assert expect(peer_identity(accepted), "client", "pmu-1")


def test_a_server_without_certificate_says_what_to_do(mesh: Mesh) -> None:
    with pytest.raises(ConfigError, match="chappe cert node"):
        server_context(mesh.anonymous)
