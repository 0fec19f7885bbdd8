"""Certificates of a mesh are renewed, authorities removed and nodes revoked by a reload alone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chappe.runtime.node import Node
from chappe.security.authority import Authority, load_certificate
from chappe.security.certificates import identity_of
from tests.support.meshes import Plan, joined
from tests.support.nodes import eventually, running

NAMES = "abc"


class Trust:
    """A folder with what nodes believe, and their certificates by one of two authorities."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authorities = [Authority.create(folder / each, datetime.now(UTC)) for each in ("old", "new")]
        for name in NAMES:
            self.issue(name, 0)
        self.believe(0)

    def issue(self, name: str, by: int) -> None:
        """A certificate by one of the authorities."""
        authority = self.authorities[by]
        authority.issue(name, "node", datetime.now(UTC), hosts=["127.0.0.1"], replace=True)
        for end in ("pem", "key"):
            path = self.folder / f"{name}.{end}"
            path.write_bytes((authority.folder / f"{name}.{end}").read_bytes())
            path.chmod(0o600)

    def believe(self, *which: int) -> None:
        """Nodes believe these authorities, and their lists of revoked certificates."""
        for end in ("pem", "crl"):
            texts = [(self.authorities[each].folder / f"ca.{end}").read_bytes() for each in which]
            (self.folder / f"ca.{end}").write_bytes(b"".join(texts))

    def toml(self, plan: Plan, name: str) -> str:
        where = self.folder
        tls = f'[tls]\nca = "{where}/ca.pem"\ncrl = "{where}/ca.crl"\n'
        tls += f'cert = "{where}/{name}.pem"\nkey = "{where}/{name}.key"\n'
        return plan.toml(name).replace("tcp://", "tls://") + tls

    def serial(self, name: str) -> str:
        return identity_of(load_certificate(self.folder / f"{name}.pem")).serial


@contextlib.asynccontextmanager
async def trusted(folder: Path) -> AsyncIterator[tuple[Trust, dict[str, Node]]]:
    trust = Trust(folder)
    plan = Plan((("a", "b"), ("b", "c")))
    async with running(*(trust.toml(plan, name) for name in plan.names), dev=False) as nodes:
        found = dict(zip(plan.names, nodes, strict=True))
        await eventually(lambda: all(joined(plan, node) for node in nodes))
        yield trust, found


def members(node: Node) -> list[str]:
    assert node.mesh is not None
    return node.mesh.member.state.members()


def signed_by(at: Node, name: str) -> set[str]:
    """Serial numbers of the certificates under what a node holds of another."""
    assert at.mesh is not None
    verifier = at.mesh._verifier
    assert verifier is not None
    entries = at.mesh.member.state.database.entries
    found = [verifier._read(entry.statement.signature) for key, entry in entries.items() if key[3] == name]
    return {identity_of(signed.certificate).serial for signed in found if signed is not None}


def shown(at: Node, name: str) -> str:
    """Serial number of the certificate that a neighbour has shown."""
    peer = at.peers.named(name)
    return peer.connection.session.identity.serial if peer is not None and peer.connection is not None else ""


async def test_after_a_reload_a_node_signs_with_its_new_certificate_and_all_hold_what_it_signed(tmp_path: Path) -> None:
    async with trusted(tmp_path) as (trust, nodes):
        before = trust.serial("c")
        assert signed_by(nodes["a"], "c") == {before}
        trust.issue("c", 0)
        await nodes["c"].reload(nodes["c"].config)
        await eventually(lambda: signed_by(nodes["a"], "c") == {trust.serial("c")})
        assert before not in signed_by(nodes["b"], "c")
        await eventually(lambda: members(nodes["a"]) == ["a", "b", "c"])


async def test_an_authority_that_is_removed_is_not_believed_for_statements_or_connections(tmp_path: Path) -> None:
    async with trusted(tmp_path) as (trust, nodes):
        trust.believe(0, 1)
        for node in nodes.values():
            await node.reload(node.config)
        for name in "ab":
            trust.issue(name, 1)
            await nodes[name].reload(nodes[name].config)
        await eventually(lambda: shown(nodes["a"], "b") == trust.serial("b"))
        await eventually(lambda: shown(nodes["b"], "a") == trust.serial("a"))
        await eventually(lambda: all(members(node) == ["a", "b", "c"] for node in nodes.values()))
        trust.believe(1)
        await nodes["a"].reload(nodes["a"].config)
        assert members(nodes["a"]) == ["a", "b"], "c has a certificate of the authority that a believes no more"
        assert not signed_by(nodes["a"], "c")
        await nodes["b"].reload(nodes["b"].config)
        await eventually(lambda: "c" not in nodes["b"].peers.channels())
        await eventually(lambda: members(nodes["b"]) == ["a", "b"])
        trust.issue("c", 1)
        await nodes["c"].reload(nodes["c"].config)
        await eventually(lambda: all(members(node) == ["a", "b", "c"] for node in nodes.values()))


async def test_a_revoked_node_falls_out_of_a_map_with_the_reload(tmp_path: Path) -> None:
    async with trusted(tmp_path) as (trust, nodes):
        trust.authorities[0].revoke("c", datetime.now(UTC))
        trust.believe(0)
        await nodes["a"].reload(nodes["a"].config)
        assert members(nodes["a"]) == ["a", "b"]


@pytest.mark.parametrize("by", [0, 1])
async def test_a_statement_under_the_certificate_before_holds_until_it_is_replaced(tmp_path: Path, by: int) -> None:
    async with trusted(tmp_path) as (trust, nodes):
        trust.believe(0, 1)
        trust.issue("c", by)  # c itself was not reloaded yet
        for name in "ab":
            await nodes[name].reload(nodes[name].config)
        assert members(nodes["a"]) == ["a", "b", "c"]
