"""Cells as real nodes on loopback: links that they dial themselves, and parcels between their clients."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire.control import Done, List, Listing, OwnNames
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.parcels import CellParcel, ParcelFlag
from tests.support.keys import Keys
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

CELLS = "[cells]\nupdate_s = 0.2\nrandom = 0\nfar = 0\nneighbours = {}\n"
flows = itertools.count(1)


def file(name: str, *peers: tuple[str, str], mesh: bool = False, neighbours: int = 1) -> str:
    text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n' + CELLS.format(neighbours)
    text += "[mesh]\n" if mesh else ""
    return text + "".join(f'[[peer]]\nname = "{peer}"\nurl = "{url}"\n' for peer, url in peers)


class NamedClient:
    """A client in plain Python that has names and sends parcels as they are."""

    def __init__(self, wire: WireClient, name: str) -> None:
        self.wire = wire
        self.name = name

    @classmethod
    @asynccontextmanager
    async def at(cls, node: Node, name: str) -> AsyncIterator[NamedClient]:
        wire = await WireClient.open(node.url, name=name.replace(".", "-"))
        try:
            assert isinstance(await wire.ask(OwnNames, add=(name,)), Done)
            yield cls(wire, name)
        finally:
            await wire.close()

    def send(self, destination: str, body: bytes) -> int:
        flow = next(flows)
        flags = ParcelFlag.FIRST | ParcelFlag.LAST
        if destination.endswith("*"):
            flags |= ParcelFlag.MULTICAST
        parcel = CellParcel(flow, 0, destination, self.name, body, flags)
        self.wire.send_bytes(encode_frame(Kind.PARCEL, b"\x02" + parcel.encode()))
        return flow

    @property
    def got(self) -> list[CellParcel]:
        return [CellParcel.decode(content) for content in self.wire.parcels]


def linked(node: Node, other: str) -> bool:
    assert node.core.cells is not None
    return any(each.name == other and each.joined for each in node.core.cells.neighbours.values())


def knows(node: Node, *names: str) -> bool:
    assert node.core.cells is not None
    return all(name in node.core.cells.trie for name in names)


@pytest.mark.spec("BF-01", "BF-06", "BF-26")
async def test_three_cells_dial_each_other_and_a_parcel_arrives() -> None:
    async with running(file("hub")) as [hub]:  # noqa: SIM117  the others need its address
        async with running(file("a", ("hub", hub.url)), file("b", ("hub", hub.url))) as [a, b]:
            async with NamedClient.at(a, "fr.paris") as paris, NamedClient.at(b, "fr.lyon") as lyon:
                await eventually(lambda: linked(a, "b") and linked(b, "a"))
                await eventually(lambda: knows(a, "fr.lyon") and knows(b, "fr.paris"))
                assert {peer.name: peer.listed for peer in a.peers} == {"hub": True, "b": False}
                flow = paris.send("fr.lyon", b"bonjour")
                await eventually(lambda: lyon.got)
                [parcel] = lyon.got
                assert (parcel.flow, parcel.source, parcel.body) == (flow, "fr.paris", b"bonjour")
                lyon.send("fr.*", b"tous")
                await eventually(lambda: paris.got)
                assert paris.got[0].body == b"tous"
                listing = await paris.wire.ask(List, what="cells")
                assert isinstance(listing, Listing)
                assert {row["name"]: row["cell"] for row in listing.rows} == {"fr.paris": "a", "fr.lyon": "b"}
                routes = await paris.wire.ask(List, what="parcel_routes", of="fr.lyon")
                assert routes.rows[0]["hops"][-1] == "b"
                assert sum(row["base_share"] for row in routes.rows) == (pytest.approx(1))
                links = await paris.wire.ask(List, what="cell_links")
                assert {row["name"]: (row["status"], row["mesh"]) for row in links.rows} == {
                    "hub": ("up", True), "b": ("up", False),
                }  # fmt: skip
                assert (await a.snapshot()).gauges["cell_links"] == 2
            await eventually(lambda: not knows(a, "fr.lyon"))
            await eventually(lambda: not linked(a, "b"))  # nobody wants the link any more
            assert linked(a, "hub")
            await eventually(
                lambda: all(peer.dialler is None for node in (a, b) for peer in node.peers if not peer.listed)
            )
            assert not linked(a, "b")


async def test_a_link_that_only_cells_want_does_not_join_the_map() -> None:
    async with running(file("hub", mesh=True)) as [hub]:
        files = [file(name, ("hub", hub.url), mesh=True) for name in "ab"]
        async with running(*files) as [a, b], NamedClient.at(a, "n.a"), NamedClient.at(b, "n.b"):
            await eventually(lambda: linked(a, "b"))
            await eventually(lambda: len(set(a.core.member.state.members())) == 3)  # type: ignore[union-attr]
            for node in (a, b):
                assert node.core.member is not None
                assert set(node.core.member.links.ports) == {"hub"}
            link = a.core.member.links.named("b")  # type: ignore[union-attr]
            assert link is not None
            assert link.role == "cell"
            assert link.trains is not None


async def test_a_link_that_a_file_lists_takes_the_place_of_one_of_cells() -> None:
    async with running(file("hub", mesh=True)) as [hub], running(file("a", ("hub", hub.url), mesh=True)) as [a]:
        late = file("b", ("hub", hub.url), mesh=True)
        async with running(late) as [b], NamedClient.at(a, "n.a"), NamedClient.at(b, "n.b"):
            await eventually(lambda: linked(a, "b") and linked(b, "a"))
            assert "b" not in a.core.member.links.ports  # type: ignore[union-attr]
            # the file of b names a from now on
            await b.reload(parse(file("b", ("hub", hub.url), ("a", a.url), mesh=True)))
            await eventually(lambda: "b" in a.core.member.links.ports)  # type: ignore[union-attr]
            await eventually(lambda: linked(a, "b") and linked(b, "a"))


async def test_who_answers_a_dial_must_have_the_certificate_of_that_cell(tmp_path: Path) -> None:
    """One says that it is reached where another listens."""
    keys = Keys(tmp_path)

    def cell(name: str, rest: str) -> str:
        return keys.toml(name, rules=f"[cells]\nupdate_s = 0.2\nfar = 0\n{rest}")

    async with running(cell("hub", "random = 0\n"), keys.toml("x"), dev=False) as [hub, other]:
        peer = f'[[peer]]\nname = "hub"\nurl = "{hub.url}"\n'
        lying = f'random = 0\nurls = ["{other.url}"]\n{peer}'
        async with running(cell("a", f"random = 2\n{peer}"), cell("b", lying), dev=False) as [a, b]:
            await eventually(lambda: linked(a, "hub") and linked(b, "hub"))
            await eventually(lambda: (link := a.peers.named("b")) is not None and link.problem)
            link = a.peers.named("b")
            assert link is not None
            assert "'x', not 'b'" in link.problem
            assert not linked(a, "b")
