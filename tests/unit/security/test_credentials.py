"""Credentials of a running process: identification, reload while connections live, bad files change nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from chappe.errors import ConfigError, RefusedError
from chappe.security import Credentials, Identity, Rule, RuleBook, Tokens, expect, handshake_reason, peer_identity
from chappe.security.tokens import create_key, issue, load_signing_key
from tests.unit.security.conftest import Connect, Mesh, now

DAY_NS = 86_400 * 1_000_000_000


def test_a_renewed_certificate_is_shown_after_reload_while_an_old_connection_lives(
    mesh: Mesh, connect: Connect
) -> None:
    west = Credentials(mesh.tls("west"))
    east = Credentials(mesh.tls("east"))
    listening = west.server
    old_server, old_client = connect(listening, east.client).established
    before = peer_identity(old_client)
    mesh.authority.renew("west", now() + timedelta(minutes=1), new_key=True)
    unchanged = peer_identity(connect(listening, east.client).established[1])
    west.reload()
    after = peer_identity(connect(listening, east.client).established[1])
    assert west.server is listening
    assert unchanged == before
    assert expect(after, "node", "west").fingerprint != expect(before, "node", "west").fingerprint
    assert west.own == after
    old_client.sendall(b"still here")
    assert old_server.recv(100) == b"still here"


def test_a_revocation_holds_for_new_connections_after_reload_and_tells_which_old_ones_lapsed(
    mesh: Mesh, connect: Connect
) -> None:
    west, client = Credentials(mesh.tls("west")), Credentials(mesh.tls("pmu-1"))
    accepted, _ = connect(west.server, client.client).established
    identity = expect(peer_identity(accepted), "client")
    mesh.authority.revoke("pmu-1", now())
    assert west.lapsed(identity) is None
    west.reload()
    assert west.lapsed(identity) == "the certificate of client 'pmu-1' is revoked"
    ends = connect(west.server, client.client)
    assert handshake_reason(ends.server_error) == "its certificate is revoked"


@pytest.mark.parametrize("file", ["ca.pem", "ca.crl", "west.pem", "west.key"])
def test_bad_files_leave_the_old_credentials_in_use(mesh: Mesh, connect: Connect, file: str) -> None:
    west, east = Credentials(mesh.tls("west")), Credentials(mesh.tls("east"))
    (mesh.authority.folder / file).write_bytes(b"half a file")
    with pytest.raises(ConfigError, match=file):
        west.reload()
    assert peer_identity(connect(west.server, east.client).established[1]) == west.own


def test_a_certificate_for_somebody_else_is_not_taken_on_reload(mesh: Mesh) -> None:
    west = Credentials(mesh.tls("west"))
    folder = mesh.authority.folder
    for ending in ("pem", "key"):
        (folder / f"west.{ending}").write_bytes((folder / f"east.{ending}").read_bytes())
    with pytest.raises(ConfigError, match="now for node 'east', and this process runs as node 'west'"):
        west.reload()


def test_a_new_authority_is_believed_after_reload(mesh: Mesh, other_mesh: Mesh, connect: Connect) -> None:
    west = Credentials(mesh.tls("west"))
    folder = mesh.authority.folder
    stranger = other_mesh.tls("pmu-1", ca=folder / "ca.pem")
    for file in ("ca.pem", "ca.crl"):
        both = (folder / file).read_bytes() + (other_mesh.authority.folder / file).read_bytes()
        (folder / file).write_bytes(both)
    assert connect(west.server, Credentials(stranger).client).server_error
    west.reload()
    accepted, _ = connect(west.server, Credentials(stranger).client).established
    assert expect(peer_identity(accepted), "client", "pmu-1")


async def test_a_listening_asyncio_server_follows_reloads(mesh: Mesh) -> None:
    west, east = Credentials(mesh.tls("west")), Credentials(mesh.tls("east"))
    seen: asyncio.Queue[Identity | None] = asyncio.Queue()

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await seen.put(peer_identity(writer.get_extra_info("ssl_object")))
        writer.close()

    async def dial() -> Identity | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=east.client, server_hostname="west")
        try:
            identity = peer_identity(writer.get_extra_info("ssl_object"))
            await reader.read()
        finally:
            writer.close()
        return identity

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=west.server)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await dial() == west.own
        assert expect(await seen.get(), "node", "east")
        mesh.authority.renew("west", now())
        west.reload()
        assert await dial() == west.own
        assert expect(await seen.get(), "node", "east")
        mesh.authority.revoke("east", now())
        west.reload()
        with suppress(OSError):  # the loop reports the alert as an error or as the end of the stream
            await dial()
        assert seen.empty()


@pytest.mark.spec("GS-160", "NS-073")
@pytest.mark.parametrize(
    ("who", "asked", "refused"),
    [
        ("leaf", "control", None),
        ("pmu-1", "control", "client 'pmu-1' may not control"),
        ("east", "control", "node 'east' may not control"),
        ("pmu-1", "register", None),
        ("leaf", "register", "broker 'leaf' may not register"),
        ("leaf", "admin", "broker 'leaf' may not admin"),
    ],
)
def test_a_command_counts_only_from_a_proven_identity_with_a_rule(
    mesh: Mesh, connect: Connect, who: str, asked: str, refused: str | None
) -> None:
    west = Credentials(mesh.tls("west"))
    accepted, _ = connect(west.server, Credentials(mesh.tls(who)).client).established
    role = "node" if who == "east" else "client"
    identity = west.identify(role, who, peer_identity(accepted), None)
    book = RuleBook.of([Rule("register", "{name}/#", roles=("client",))])
    decision = book.allows(identity, asked, f"{who}/Setup")  # type: ignore[arg-type]
    assert decision.allowed is (refused is None)
    assert (refused or "") in decision.reason


@pytest.fixture
def with_tokens(mesh: Mesh, tmp_path: Path) -> tuple[Credentials, Path]:
    create_key(tmp_path / "tokens")
    (tmp_path / "revoked").write_text("")
    section = Tokens(keys=(str(tmp_path / "tokens" / "token.pub"),), revoked=str(tmp_path / "revoked"))
    return Credentials(mesh.tls("west"), section), tmp_path


def _token(folder: Path, name: str = "lab", ttl_s: int = 60) -> str:
    return issue(load_signing_key(folder / "tokens" / "token.key"), name, "client", ttl_s, time.time_ns())


@pytest.mark.spec("NS-073")
def test_a_client_without_certificate_comes_in_by_its_token(
    mesh: Mesh, connect: Connect, with_tokens: tuple[Credentials, Path]
) -> None:
    west, folder = with_tokens
    accepted, _ = connect(west.server, Credentials(mesh.anonymous).client).established
    identity = west.identify("client", "whatever", peer_identity(accepted), _token(folder))
    assert (identity.name, identity.role, identity.how) == ("lab", "client", "token")


def test_who_brings_nothing_is_told_what_to_bring(mesh: Mesh, with_tokens: tuple[Credentials, Path]) -> None:
    with pytest.raises(RefusedError, match="client 'lab' must bring a certificate or a token"):
        with_tokens[0].identify("client", "lab", None, None)
    with pytest.raises(RefusedError, match=r"client 'lab' must bring a certificate$"):
        Credentials(mesh.tls("west")).identify("client", "lab", None, None)


def test_a_bad_token_is_not_saved_by_a_good_certificate(with_tokens: tuple[Credentials, Path]) -> None:
    certificate = Identity(name="pmu-1", role="client", how="certificate")
    with pytest.raises(RefusedError, match="cannot be read"):
        with_tokens[0].identify("client", "pmu-1", certificate, "junk")


def test_tokens_are_refused_where_none_are_taken(mesh: Mesh, with_tokens: tuple[Credentials, Path]) -> None:
    with pytest.raises(RefusedError, match=r"no \[tokens\] section"):
        Credentials(mesh.tls("west")).identify("client", "lab", None, _token(with_tokens[1]))


@pytest.mark.parametrize(
    ("role", "name", "certificate", "why"),
    [
        ("node", "east", None, "expected node 'east', and no certificate came"),
        ("node", "east", ("pmu-1", "client"), "the certificate is for client 'pmu-1'"),
        ("node", "east", ("east", "client"), "expected node 'east', and the certificate is for client 'east'"),
        ("node", "east", ("east", "admin"), "expected node 'east', and the certificate is for admin 'east'"),
        ("node", "east", ("north", "node"), "the certificate is for node 'north'"),
        ("client", "east", ("east", "node"), "a client needs its own"),
        ("king", "east", ("east", "node"), "unknown role 'king'"),
    ],
)
def test_nobody_passes_as_somebody_else(
    with_tokens: tuple[Credentials, Path], role: str, name: str, certificate: tuple[str, str] | None, why: str
) -> None:
    west, folder = with_tokens
    shown = certificate and Identity(name=certificate[0], role=certificate[1], how="certificate")  # type: ignore[arg-type]
    token = _token(folder, "east") if role == "node" else None
    with pytest.raises(RefusedError, match=why):
        west.identify(role, name, shown or None, token)


def test_a_token_lapses_by_time_by_revocation_and_by_key(mesh: Mesh, with_tokens: tuple[Credentials, Path]) -> None:
    _, folder = with_tokens
    clock = [time.time_ns()]
    section = Tokens(keys=(str(folder / "tokens" / "token.pub"),), revoked=str(folder / "revoked"))
    west = Credentials(mesh.tls("west"), section, lambda: clock[0])
    identity = west.identify("client", "lab", None, _token(folder))
    assert west.lapsed(identity) is None
    (folder / "revoked").write_text(f"{identity.serial}  # lost laptop\n")
    west.reload()
    assert west.lapsed(identity) == f"token {identity.serial} of 'lab' is revoked"
    (folder / "revoked").write_text("")
    create_key(folder / "newer")
    (folder / "tokens" / "token.pub").write_bytes((folder / "newer" / "token.pub").read_bytes())
    west.reload()
    assert "is no longer believed" in (west.lapsed(identity) or "")
    clock[0] += DAY_NS
    assert west.lapsed(identity) == "the token of client 'lab' has expired"


def test_an_expired_certificate_lapses_on_a_connection_that_lives(mesh: Mesh) -> None:
    clock = [time.time_ns()]
    west = Credentials(mesh.tls("west"), clock_ns=lambda: clock[0])
    assert west.own is not None
    assert west.lapsed(west.own) is None
    clock[0] += 366 * DAY_NS
    assert west.lapsed(west.own) == "the certificate of node 'west' has expired"


def test_a_client_cannot_listen(mesh: Mesh) -> None:
    with pytest.raises(ConfigError, match="chappe cert node"):
        _ = Credentials(mesh.tls("pmu-1")).server
    with pytest.raises(ConfigError, match=r"no \[tls\] section"):
        _ = Credentials(None).client
