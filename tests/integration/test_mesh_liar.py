"""A neighbour that lies, over a real socket: refused with the reason, or contained; ways of others stay as they are."""

from __future__ import annotations

from itertools import permutations

import pytest

from chappe.runtime.node import Node
from chappe.wire.mesh import InterestAdvert, LinkAdvert, LinkFact, MeshJoin, Statement
from tests.support.meshes import Plan, mesh, way
from tests.support.nodes import eventually
from tests.support.statements import stated
from tests.support.wireclient import WireClient

CHEAP = 0.001
ID, OWN = bytes(range(16)), bytes(16)


def told(sequence: int, *links: LinkFact, **fields: object) -> Statement:
    said = {"origin": "liar", "level": 0, "scope": "", "originator": "liar", **fields}
    return stated(LinkAdvert(sequence=sequence, links=links, **said))  # type: ignore[arg-type]


def link_of(node: Node, a: str, b: str) -> bytes:
    """The id of the link between two nodes."""
    assert node.mesh is not None
    rows = node.mesh.member.state.map_rows()
    return bytes.fromhex(next(row["link"] for row in rows if {row["a"], row["b"]} == {a, b}))


async def liar(node: Node) -> WireClient:
    """Joined to the mesh at that node, as a neighbour that says what a test wants."""
    client = await WireClient.open(node.url, role="node", name="liar", heartbeat_ns=60_000_000_000)
    client.send(MeshJoin(name="liar", unit="", link=OWN, kind="tcp"))
    return client


async def test_what_a_liar_tells_draws_no_way_of_others() -> None:
    plan = Plan((("a", "b"), ("b", "c"), ("a", "c")), more='[[peer]]\nname = "liar"\n')
    async with mesh(plan) as nodes:
        a = nodes["a"]
        assert a.mesh is not None
        member = a.mesh.member
        await eventually(lambda: len(member.state.map_rows()) == len(plan.links))
        await eventually(lambda: all(way(nodes[at], to) for at, to in permutations("abc", 2)))
        links = {row["link"] for row in member.state.map_rows()}
        other = link_of(a, "b", "c")
        client = await liar(a)
        try:
            await eventually(lambda: "liar" in member.links.ports)
            joined = member.links.by_port[member.links.ports["liar"]].id
            lies = [
                # a link to c that c knows nothing of, and the link of two others as its own: told, in no map
                told(1, LinkFact(ID, "c", 0, "tcp", False, CHEAP, 0.0, 0.0)),
                told(2, LinkFact(other, "c", 0, "tcp", False, CHEAP, 0.0, 0.0)),
                # its own link for nothing: the other end has measured it, too
                told(3, LinkFact(joined, "a", 0, "tcp", False, CHEAP, 0.0, 0.0, 1e12)),
            ]
            refused = [
                told(4, LinkFact(ID, "c", 0, "tcp", False, -1.0)),
                told(5, LinkFact(ID, "c", 0), LinkFact(ID, "c", 0)),
                told(6, LinkFact(ID, "liar", 0)),
                told(7, originator="b"),  # what b says under the name of another
                told(8, origin="unit", level=1),
                stated(InterestAdvert(origin="nobody", level=0, scope="x", originator="nobody", sequence=1)),
            ]
            before = member.refused
            client.send(*lies, *refused)
            await eventually(lambda: member.refused == before + len(refused))
            for at, to in permutations("abc", 2):  # measured for real they may change, but nobody is drawn to the liar
                assert way(nodes[at], to)
                assert "liar" not in way(nodes[at], to)
            found = {row["link"]: {row["a"], row["b"]} for row in member.state.map_rows()}
            assert {link for link in found if "liar" not in found[link]} == links
            assert found[other.hex()] == {"b", "c"}
            assert ID.hex() not in found
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (MeshJoin(name="b", unit="", link=OWN), "joins as 'b'"),
        (MeshJoin(name="liar", unit="x/y", link=OWN), "all nodes of a mesh have the same depth"),
        (MeshJoin(name="liar", unit="", link=b"short"), "the id of a link has 16 bytes"),
    ],
)
async def test_who_joins_as_somebody_else_or_elsewhere_is_told_why(join: MeshJoin, reason: str) -> None:
    plan = Plan((("a", "b"),), more='[[peer]]\nname = "liar"\n')
    async with mesh(plan) as nodes:
        client = await WireClient.open(nodes["a"].url, role="node", name="liar", heartbeat_ns=60_000_000_000)
        try:
            client.send(join)
            await client.until(lambda: client.refused is not None or client.closed.is_set())
            assert client.refused is not None
            assert reason in client.refused.reason
            assert way(nodes["a"], "b") == ["b"]
        finally:
            await client.close()
