"""A mesh with certificates: what nodes say is signed, and a neighbour that lies is not believed."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import chappe
from chappe.runtime.mesh.signing import Signer
from chappe.runtime.node import Node
from chappe.security.authority import Authority
from chappe.wire.mesh import LinkAdvert
from tests.support.meshes import Plan, joined, quiet, wants, way
from tests.support.nodes import eventually, running
from tests.support.statements import stated

RULES = '[[rule]]\naction = ["publish", "subscribe"]\npattern = "#"\n'


def secured(plan: Plan, folder: Path) -> list[str]:
    """The files of the nodes, with certificates of one authority."""
    authority = Authority.create(folder, datetime.now(UTC))
    authority.issue("user", "client", datetime.now(UTC))
    tomls = []
    for name in plan.names:
        authority.issue(name, "node", datetime.now(UTC), hosts=["127.0.0.1"])
        tls = f'[tls]\nca = "{folder}/ca.pem"\ncert = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"\n'
        tomls.append(plan.toml(name).replace("tcp://", "tls://") + tls + RULES)
    return tomls


@pytest.mark.spec("MR-110")
async def test_events_flow_and_what_is_told_is_signed(tmp_path: Path) -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    tls = (f"{tmp_path}/ca.pem", f"{tmp_path}/user.pem", f"{tmp_path}/user.key")
    async with running(*secured(plan, tmp_path), dev=False) as nodes:
        found = dict(zip(plan.names, nodes, strict=True))
        await eventually(lambda: all(joined(plan, node) for node in nodes))
        async with (
            chappe.connect(found["a"].url, tls=tls) as publisher,
            chappe.connect(found["c"].url, tls=tls) as client,
        ):
            subscription = await client.subscribe("x")
            await eventually(lambda: wants(found["a"], "x") and quiet(found["a"]))
            publisher.publish("x", b"1")
            assert (await asyncio.wait_for(anext(subscription), 30)).body == b"1"
        forged(found["b"], found["a"])


def forged(liar: Node, victim: Node) -> None:
    """A neighbour says in the name of another node that its link is gone, or that a link of its own costs nothing."""
    assert liar.mesh is not None
    assert victim.mesh is not None
    member = victim.mesh.member
    before = way(victim, "c")
    port = member.links.ports[liar.name]
    advert = LinkAdvert(
        origin="c", level=0, scope="", originator="c", sequence=1 << 60, time_ns=time.time_ns(), links=(), members=1,
    )  # fmt: skip
    for signature in (
        b"",
        b"nonsense",
        Signer(liar.credentials)(b"another text"),
        Signer(liar.credentials)(stated(advert).body),
    ):
        member.receive(port, stated(advert, signature), victim.engine.mono_ns)
    member.tick(victim.engine.mono_ns + 1_000_000_000)
    assert member.refused > 0
    assert way(victim, "c") == before
    assert before == ["b", "c"]
