"""Cells with their real machines and engines in virtual time: links, routes, parcels, failures."""

from __future__ import annotations

import pytest

from chappe.cells.names import cell_id
from chappe.core.sections import Cells
from chappe.sim.link import Quality
from chappe.wire.cells import CellLinks, CellRecord, CellRecords
from chappe.wire.control import encode
from chappe.wire.frames import Kind, encode_frame
from tests.support.cellmesh import CellMesh


def linked(mesh: CellMesh, a: str, b: str) -> bool:
    return any(each.name == b and each.joined for each in mesh.machine(a).neighbours.values())


def missing(mesh: CellMesh) -> list[tuple[str, str]]:
    """Pairs of a cell and a name without a route between them."""
    running = mesh.running()
    return [
        (machine.address, name)
        for machine in running
        for other in running
        if other is not machine
        for name in other.names
        if not machine.parcel_routes(name.encode())
    ]


@pytest.mark.spec("BF-06", "BF-10", "BF-12")
@pytest.mark.parametrize("count", [8, 30])
def test_cells_find_their_neighbours_and_routes_to_all(count: int) -> None:
    mesh = CellMesh()
    names = mesh.ring(count)
    mesh.until(mesh.known_everywhere, 20)
    mesh.run(10)
    for at, name in enumerate(names):
        for other in names[max(0, at - 2) : at] + names[at + 1 : at + 3]:
            assert linked(mesh, name, other), (name, other)
    assert missing(mesh) == []
    for machine in mesh.running():
        for name in machine.trie:
            mesh.progress(machine, name)
        assert machine.counts.refused == machine.counts.excess == 0


@pytest.mark.timeout(300)
def test_a_hundred_cells_reach_each_other() -> None:
    mesh = CellMesh(2)
    names = mesh.ring(100)
    mesh.until(mesh.known_everywhere, 30, 1.0)
    mesh.run(6)
    first = mesh.senders[names[0]]
    sent = {name: first.send(f"n.{at:03}") for at, name in enumerate(names) if at % 9 == 5}
    back = mesh.senders[names[97]].send("n.000")
    mesh.run(2)
    for name, flow in sent.items():
        assert mesh.senders[name].flows() == [flow]
    assert first.flows() == [back]
    for machine in mesh.running()[::7]:
        for at in range(0, 100, 3):
            mesh.progress(machine, f"n.{at:03}")


@pytest.mark.spec("BF-11", "BF-20")
def test_links_are_known_within_the_radius_and_not_beyond() -> None:
    mesh = CellMesh()
    alone = Cells(neighbours=1, random=0, far=0)
    names = mesh.ring(12, section=alone)
    mesh.run(20)
    for machine in mesh.running():
        near = {id for id, hops in machine.neighbourhood.hops.items() if hops <= 2}
        assert near == set(machine.neighbourhood.hops)
        expected: set[str] = set()
        for name in names:
            if linked(mesh, machine.address, name) or any(
                linked(mesh, machine.address, mid) and linked(mesh, mid, name) for mid in names
            ):
                expected.add(name)
        assert {machine.directory.get(id).name for id in near} == expected - {machine.address}  # type: ignore[union-attr]


@pytest.mark.spec("BF-08", "BF-09")
def test_random_and_far_cells_are_kept_while_they_live() -> None:
    mesh = CellMesh()
    names = mesh.ring(24, section=Cells(neighbours=1, random=2, far=1))
    mesh.run(30)
    dialling = mesh.machine(names[3]).dialling
    chosen = {id: why for id, why in dialling.wanted.items() if why != "near"}
    assert sorted(chosen.values()) == ["far", "random", "random"]
    mesh.run(20)
    assert {id: why for id, why in dialling.wanted.items() if why != "near"} == chosen
    gone = next(iter(chosen))
    mesh.network.crash(mesh.machine(names[3]).directory.get(gone).name)  # type: ignore[union-attr]
    mesh.run(5)
    now = {id: why for id, why in dialling.wanted.items() if why != "near"}
    assert gone not in now
    assert sorted(now.values()) == ["far", "random", "random"]
    assert len(now.keys() & chosen.keys()) == 2


def test_links_that_nobody_wants_any_more_are_hung_up_late() -> None:
    mesh = CellMesh()
    section = Cells(neighbours=1, random=0, far=0)
    for name, owned in (("a", "m.1"), ("b", "m.5"), ("hub", "z")):
        mesh.add(name, owned, section=section)
    mesh.network.join("a", "hub")
    mesh.network.join("b", "hub")
    mesh.until(lambda: linked(mesh, "a", "b"))
    mesh.add("c", "m.3", section=section)
    mesh.network.join("c", "hub")
    mesh.until(lambda: linked(mesh, "a", "c") and linked(mesh, "b", "c"))
    assert linked(mesh, "a", "b")  # it is not wanted, and not yet hung up
    mesh.until(lambda: not linked(mesh, "a", "b"), 15)
    mesh.run(10)
    assert linked(mesh, "a", "hub")  # the network has it anyway


@pytest.mark.spec("BF-04")
def test_names_move_from_one_cell_to_another_while_they_run() -> None:
    mesh = CellMesh()
    names = mesh.ring(8)
    mesh.until(mesh.known_everywhere)
    mesh.run(4)
    source, old, new = (mesh.senders[names[at]] for at in (0, 5, 2))
    source.send("n.005")
    mesh.run(1)
    assert len(old.flows()) == 1
    old.node.core.cells.remove_names(old.client.port, ["n.005"])  # type: ignore[union-attr]
    new.node.core.cells.add_names(new.client.port, ["n.005"], "x")  # type: ignore[union-attr]
    old.node.touch()
    new.node.touch()
    mesh.run(2)
    assert all(m.trie.find("n.005").cell == cell_id(names[2]) for m in mesh.running() if m.address != names[2])  # type: ignore[union-attr]
    source.send("n.005")
    mesh.run(2)
    assert len(old.flows()) == 1
    assert len(new.flows()) == 1


def test_the_names_of_a_client_that_is_gone_are_withdrawn_within_an_update() -> None:
    mesh = CellMesh()
    names = mesh.ring(8)
    mesh.until(mesh.known_everywhere)
    gone = mesh.senders[names[6]]
    gone.node.close_client(gone.client)
    mesh.run(2)
    assert all("n.006" not in machine.trie for machine in mesh.running())


def test_a_name_that_is_there_again_ends_what_its_paths_were_excluded_for() -> None:
    mesh = CellMesh()
    mesh.add("a", "n.0")
    mesh.add("b", "n.1")
    mesh.network.join("a", "b")
    mesh.until(mesh.known_everywhere)
    mesh.run(4)
    source, target = mesh.senders["a"], mesh.senders["b"]
    machine, hops = mesh.machine("a"), (cell_id("b"),)
    source.send("n.1")
    machine.router.exclude("n.1", hops, machine.engine.mono_ns)
    machine.engine.parcels_changed(b"n.1")
    assert machine.parcel_routes(b"n.1") == []
    target.node.core.cells.remove_names(target.client.port, ["n.1"])  # type: ignore[union-attr]
    target.node.core.cells.add_names(target.client.port, ["n.1"], "x")  # type: ignore[union-attr]
    target.node.touch()
    mesh.run(2.5)  # an exclusion lasts 30 s
    assert [route.hops for route in machine.parcel_routes(b"n.1")] == [hops]
    source.send("n.1")
    mesh.run(0.5)
    assert len(target.flows()) == 2


def test_of_two_cells_with_a_name_the_later_one_gets_its_parcels_and_the_other_follows() -> None:
    mesh = CellMesh()
    for at, name in enumerate("abcd"):
        mesh.add(name, f"n.{at}")
        if at:
            mesh.network.join("a", name)
    mesh.run(5)
    for name in "bd":
        sender = mesh.senders[name]
        sender.node.core.cells.add_names(sender.client.port, ["shared"], name)  # type: ignore[union-attr]
        sender.node.touch()
        mesh.run(3)
    mesh.senders["a"].send("shared")
    mesh.run(1)
    assert [len(mesh.senders[name].flows()) for name in "bd"] == [0, 1]
    mesh.network.crash("d")
    mesh.run(4)
    mesh.senders["a"].send("shared")
    mesh.run(1)
    assert len(mesh.senders["b"].flows()) == 1


@pytest.mark.parametrize("silent", [False, True])
def test_a_cell_that_dies_is_gone_everywhere_within_an_update_after_it_is_noticed(silent: bool) -> None:
    mesh = CellMesh()
    names = mesh.ring(20)
    mesh.until(mesh.known_everywhere)
    mesh.run(10)
    mesh.network.crash(names[9], silent=silent)
    mesh.run((3 if silent else 0) + 2.5)
    gone = cell_id(names[9])
    for machine in mesh.running():
        assert gone not in machine.neighbourhood.hops
        assert "n.009" not in machine.trie
        assert gone not in machine.directory
    mesh.run(5)
    assert missing(mesh) == []
    mesh.network.restart(names[9])
    mesh.until(mesh.known_everywhere, 15)


def test_churn_leaves_routes_between_all_that_live_and_no_violation() -> None:
    mesh = CellMesh(3)
    names = mesh.ring(24)
    mesh.until(mesh.known_everywhere)
    mesh.run(6)
    for at in (4, 11, 17, 22, 8):
        mesh.network.crash(names[at])
        mesh.run(1)
        for machine in mesh.running():
            for other in mesh.running():
                if other is not machine:
                    mesh.progress(machine, next(iter(other.names)))
        mesh.run(2)
    for at in (11, 4):
        mesh.network.restart(names[at])
        mesh.run(3)
    mesh.until(mesh.known_everywhere, 20)
    mesh.run(8)
    assert missing(mesh) == []
    alive = mesh.network.running()
    for node in alive:
        mesh.senders[alive[0].name].send(f"n.{int(node.name[1:]):03}")
    mesh.run(2)
    for node in alive:
        assert len(mesh.senders[node.name].flows()) == 1


@pytest.mark.spec("BF-07", "BF-37")
def test_two_cells_that_cannot_connect_use_a_common_neighbour() -> None:
    """Both are behind a NAT; the next cells in order take their places."""
    hidden = {"b", "c"}
    mesh = CellMesh(reachable=lambda one, other: other not in hidden)
    section = Cells(neighbours=1, random=0, far=0)
    for at, name in enumerate("abcd"):
        behind = Cells(neighbours=1, random=0, far=0, reachable=False) if name in hidden else section
        mesh.add(name, f"n.{at}", section=behind)
    for name in "bcd":
        mesh.network.join("a", name)
    mesh.run(20)
    assert not linked(mesh, "b", "c")
    wanted = mesh.machine("b").dialling.wanted
    assert cell_id("c") not in wanted
    assert cell_id("d") in wanted
    sent = [mesh.senders["b"].send("n.2"), mesh.senders["c"].send("n.1")]
    mesh.run(2)
    assert [mesh.senders["c"].flows(), mesh.senders["b"].flows()] == [[sent[0]], [sent[1]]]
    assert mesh.senders["b"].errors() == []


@pytest.mark.spec("BF-37")
def test_without_a_common_neighbour_the_sender_gets_an_error_and_no_parcel_goes_round() -> None:
    """A chain of cells that can connect to nobody else, with names against its order."""
    mesh = CellMesh(reachable=lambda one, other: False)
    behind = Cells(reachable=False, radius=1)
    for name, owned in (("a", "n.1"), ("b", "n.9"), ("c", "z"), ("d", "n.2")):
        mesh.add(name, owned, section=behind)
    for one, other in ("ab", "bc", "cd"):
        mesh.network.join(one, other)
    mesh.run(10)
    assert "n.2" in mesh.machine("a").trie
    begun = mesh.network.clock.now_ns
    flow = mesh.senders["a"].send("n.2")
    mesh.until(lambda: bool(mesh.senders["a"].errors()), 10, 0.05)
    assert mesh.network.clock.now_ns - begun <= 5e9
    assert mesh.senders["a"].errors()[0].flow == flow
    assert mesh.senders["d"].flows() == []


@pytest.mark.spec("BF-07")
def test_the_next_cell_is_tried_when_one_does_not_answer() -> None:
    """It says that it can be reached, and cannot; and it cannot reach this one either."""
    mesh = CellMesh(reachable=lambda one, other: {one, other} != {"a", "b"})
    section = Cells(neighbours=1, random=0, far=0)
    for at, name in enumerate("abcdh"):
        mesh.add(name, f"n.{at}" if name != "h" else "z", section=section)
    for name in "abcd":
        mesh.network.join("h", name)
    mesh.run(4)
    dialling = mesh.machine("a").dialling
    assert cell_id("b") in dialling.dialled
    assert not linked(mesh, "a", "c")
    mesh.run(8)
    assert cell_id("b") not in dialling.dialled
    assert linked(mesh, "a", "c")
    mesh.run(60)  # it was tried again meanwhile
    assert linked(mesh, "a", "c")
    assert not linked(mesh, "a", "b")
    assert missing(mesh) == []


def test_one_route_after_another_fails_and_parcels_find_the_next() -> None:
    mesh = CellMesh(quality=lambda one, other: Quality(delay_ms=1))
    names = mesh.ring(10)
    mesh.until(mesh.known_everywhere)
    mesh.run(8)
    source, target = mesh.senders[names[0]], mesh.senders[names[7]]
    for victim in (names[3], names[5]):
        mesh.network.crash(victim)
        mesh.run(3)
        before = len(target.flows())
        source.send("n.007")
        mesh.run(2)
        assert len(target.flows()) == before + 1


@pytest.mark.spec("BF-25", "BF-26", "BF-28", "BF-40")
def test_a_message_to_a_prefix_comes_to_every_cell_that_has_it_once() -> None:
    mesh = CellMesh()
    for at in range(16):
        mesh.add(f"c{at:02}", f"{'fr' if at % 2 else 'it'}.{at:02}")
        if at:
            mesh.network.join("c00", f"c{at:02}")
    mesh.until(mesh.known_everywhere)
    mesh.run(8)
    inside = [f"c{at:02}" for at in range(1, 16, 2)]
    from_outside = mesh.senders["c04"].send("fr.*", b"all")
    mesh.run(2)
    from_inside = mesh.senders["c05"].send("fr.*")
    mesh.run(2)
    for name in inside:
        expected = [from_outside] if name == "c05" else [from_outside, from_inside]
        assert mesh.senders[name].flows() == expected, name
    for at in range(0, 16, 2):
        assert mesh.senders[f"c{at:02}"].flows() == []
    assert mesh.senders["c01"].got[0].body == b"all"
    forwarded = sum(machine.groups.counts.forwarded for machine in mesh.running())
    repeated = sum(machine.groups.counts.repeated for machine in mesh.running())
    assert repeated == 0
    assert forwarded <= 2 * len(inside) + 3


def test_a_prefix_wider_than_the_neighbourhood_is_flooded_without_repeats_at_clients() -> None:
    mesh = CellMesh(5)
    names = mesh.ring(30, section=Cells(neighbours=2, random=0, far=0, radius=1))
    mesh.until(mesh.known_everywhere)
    mesh.run(8)
    flow = mesh.senders[names[11]].send("n.*")
    mesh.run(3)
    for name in names:
        assert mesh.senders[name].flows() == ([] if name == names[11] else [flow])


def test_parcels_to_a_prefix_that_nobody_has_are_dropped_and_counted() -> None:
    mesh = CellMesh()
    names = mesh.ring(8)
    mesh.until(mesh.known_everywhere)
    mesh.senders[names[0]].send("nowhere.*")
    mesh.run(2)
    assert sum(machine.groups.counts.dropped for machine in mesh.running()) == 1


# --- neighbours that lie


def say(mesh: CellMesh, liar: str, victim: str, message: CellLinks | CellRecords) -> None:
    node = mesh.network.nodes[victim]
    node.feed(node.ports[liar], encode_frame(Kind.CONTROL, encode(message)))


def test_a_neighbour_is_not_believed_about_links_of_this_cell_or_links_that_it_does_not_have() -> None:
    mesh = CellMesh()
    mesh.ring(4)
    mesh.until(mesh.known_everywhere)
    mesh.run(5)
    machine = mesh.machine("c000")
    before = dict(machine.neighbourhood.arcs)
    far = cell_id("nobody")
    say(mesh, "c001", "c000", CellLinks(machine.me, 1 << 50, 1, ((far, 1e9),)))
    say(mesh, "c001", "c000", CellLinks(cell_id("c002"), 1 << 61, 1, ((far, 1e9),)))
    mesh.run(0.1)
    assert dict(machine.neighbourhood.arcs) == before
    assert machine.counts.refused == 2


def test_who_is_said_to_have_failed_says_that_it_lives() -> None:
    mesh = CellMesh()
    names = mesh.ring(8)
    mesh.until(mesh.known_everywhere)
    mesh.run(5)
    victim = mesh.machine(names[0]).directory.get(cell_id(names[6]))
    assert victim is not None
    record = victim.record
    dead = CellRecord(record.id, record.sequence, record.address, alive=False)
    say(mesh, names[1], names[0], CellRecords(((1, dead),)))
    mesh.run(2)
    assert mesh.known_everywhere()


def test_a_cell_whose_id_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("parts", "directory"):
        monkeypatch.setattr(f"chappe.cells.{module}.cell_id", lambda address: cell_id(address.replace("b", "a")))
    mesh = CellMesh()
    for name in ("hub", "a", "b"):
        mesh.add(name, f"n.{name}")
    mesh.network.join("hub", "a")
    mesh.run(2)
    mesh.network.join("hub", "b")
    mesh.run(5)
    assert [each.name for each in mesh.machine("hub").neighbours.values()] == ["a"]
    lines = [log for _, log in mesh.network.nodes["hub"].logs if log.event == "cell refused"]
    assert "is taken by another one; rename its node" in lines[0].fields["reason"]
    assert set(mesh.machine("hub").trie) == {"n.a"}


def test_records_with_a_wrong_id_or_a_sequence_of_another_time_are_refused() -> None:
    mesh = CellMesh()
    mesh.ring(4)
    mesh.until(mesh.known_everywhere)
    machine = mesh.machine("c000")
    known = len(machine.directory)
    say(mesh, "c001", "c000", CellRecords(((1, CellRecord(b"12345678", 5, "x")),)))
    say(mesh, "c001", "c000", CellRecords(((1, CellRecord(cell_id("x"), 1 << 60, "x")),)))
    say(mesh, "c001", "c000", CellRecords(((1, CellRecord(cell_id("x"), 5, "x", names=(("a*", 1),))),)))
    mesh.run(0.1)
    assert machine.counts.refused == 3
    assert len(machine.directory) == known


def test_a_neighbour_that_says_too_much_is_not_listened_to() -> None:
    mesh = CellMesh()
    mesh.ring(4)
    mesh.until(mesh.known_everywhere)
    for sequence in range(3000):
        say(mesh, "c001", "c000", CellLinks(cell_id("c001"), sequence, 0, ()))
    mesh.run(0.1)
    assert mesh.machine("c000").counts.excess > 500
    mesh.run(20)
    assert missing(mesh) == []
