"""A deployment says what is wrong with it: key, reason, remedy; and what follows from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chappe.status.topology import Topology
from chappe.status.topology_checks import problems

TWO_CLOUDS: dict[str, Any] = {
    "broker": [
        {"name": "root", "listen": ["tcp://127.0.0.1:7500"]},
        {"name": "north", "parent": "root", "listen": ["tcp://127.0.0.1:7501"], "number": 1},
        {"name": "south", "parent": "root", "listen": ["tcp://127.0.0.1:7502"], "number": 2},
    ],
    "router": [
        {"name": "n1", "cloud": "north", "listen": "tcp://127.0.0.1:7401"},
        {"name": "n2", "cloud": "north", "listen": "tcp://127.0.0.1:7402"},
        {"name": "s1", "cloud": "south", "listen": "tcp://127.0.0.1:7403"},
    ],
    "channel": [{"between": ["n1", "n2"]}, {"between": ["n2", "s1"]}],
}


def changed(place: str, value: Any) -> Topology:
    """The two clouds with one thing changed: `broker.1.parent`; `broker.+` appends."""
    tables = msgspec.json.decode(msgspec.json.encode(TWO_CLOUDS))
    *way, last = place.split(".")
    at: Any = tables
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if last == "+":
        at.append(value)
    elif value is None:
        del at[int(last) if isinstance(at, list) else last]
    else:
        at[last] = value
    return msgspec.convert(tables, Topology)


def test_levels_follow_from_the_tree() -> None:
    topology = msgspec.convert(TWO_CLOUDS, Topology)
    assert problems(topology) == []
    assert topology.root == "root"
    assert topology.leaves == ["north", "south"]
    assert topology.members("north") == ["n1", "n2"]
    assert [topology.height(name) for name in ("root", "north")] == [2, 1]
    assert [topology.owner(channel) for channel in topology.channel] == ["north", "root"]
    assert [topology.level(channel) for channel in topology.channel] == [1, 2]
    assert [*topology.ancestors("south")] == ["south", "root"]
    assert topology.number("south") == 2


@pytest.mark.parametrize(
    ("place", "value", "wrong"),
    [
        ("broker.0.parent", "north", ["broker[0].parent: the parents form a loop (root -> north -> root)", "one root"]),
        ("broker.2.parent", "south", ["broker[2].parent: the parents form a loop (south -> south)"]),
        ("broker.2.parent", "west", ["broker[2].parent: 'west', the parent of south, is no broker", "root, north"]),
        ("broker.2.parent", "", ["broker[2].parent: south has none, and root is the root already"]),
        ("broker.2.name", "north", ["broker[2].name: 'north' is already the name of broker[1]", "router[2].cloud"]),
        ("router.1.name", "n1", ["router[1].name: 'n1' is already the name of router[0]"]),
        ("router.1.name", "root", ["router[1].name: 'root' is already the name of broker[0]"]),
        ("broker.2.number", 1, ["broker[2].number: south has the leaf number 1 by this key, and so has north"]),
        ("broker.0.number", 9, ["broker[0].number: root has brokers below it"]),
        ("router.2.cloud", "west", ["router[2].cloud: 'west', the cloud of s1, is no broker", "north, south"]),
        ("router.2.cloud", "root", ["router[2].cloud: root has brokers below it", "write one of north, south"]),
        ("router.2.listen", "s1:7403", ["router[2].listen: address 's1:7403' has no scheme"]),
        ("router.2.listen", "udp://127.0.0.1:1", ["router[2].listen: address 'udp://127.0.0.1:1': udp can not be"]),
        ("router.2.listen", "tcp://127.0.0.1:0", ["router[2].listen: port 0"]),
        ("router.2.listen", "tcp://127.0.0.1:7500", ["router[2].listen: tcp://127.0.0.1:7500 is the address of"]),
        ("channel.1", None, ["router[2]: no path of channels leads from n1 to s1; add a [[channel]]"]),
        ("channel.+", {"between": ["n1", "x"]}, ["channel[2].between: there is no router 'x'"]),
        ("channel.+", {"between": ["n1", "n1"]}, ["channel[2].between: it joins n1 with itself"]),
        ("channel.+", {"between": ["n2", "n1"]}, ["channel[2].between: n2 and n1 have channel[0] already"]),
        ("router.2.process", "root", ["router[2].process: 'root' is also a process of broker root"]),
        ("router.2.process", "n1", ["router[2].process: 'n1' is also the process of router n1"]),
        (
            "broker.1.listen",
            ["tcp://127.0.0.1:7501", "tcp://127.0.0.1:7509"],
            ["broker[1].store: north has 2 processes, and a file of SQLite belongs to one; give a postgresql:// url"],
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_a_remedy(place: str, value: Any, wrong: list[str]) -> None:
    found = "\n".join(problems(changed(place, value)))
    for words in wrong:
        assert words in found


def test_numbers_by_name_may_collide() -> None:
    """Leaf numbers that nobody gave come from names: two that agree are found before an id is issued twice."""
    names = [f"cloud-{number}" for number in range(200)]
    brokers = [{"name": "root", "listen": ["tcp://127.0.0.1:7000"]}]
    brokers += [{"name": name, "parent": "root", "listen": [f"tcp://127.0.0.1:{9000 + at}"]}
                for at, name in enumerate(names)]  # fmt: skip
    topology = msgspec.convert({"broker": brokers}, Topology)
    found = problems(topology)
    assert len(found) == len(names) - len({topology.number(name) for name in names}) > 0
    assert all("by its name" in line and "another number" in line for line in found)


def test_a_datagram_channel_needs_ports() -> None:
    topology = changed("channel.+", {"between": ["n1", "s1"], "data": "udp"})
    assert problems(topology) == []
    tables = msgspec.to_builtins(topology)
    tables["router"][0]["listen"] = "unix:///tmp/n1.sock"
    assert "channel[2].data: udp needs an address with a port" in "\n".join(problems(msgspec.convert(tables, Topology)))


def test_the_processes_of_a_role_share_a_database() -> None:
    tables = msgspec.to_builtins(changed("broker.1.listen", ["tcp://127.0.0.1:7501", "tcp://127.0.0.1:7509"]))
    tables["broker"][1]["store"] = "postgresql://localhost/chappe"
    topology = msgspec.convert(tables, Topology)
    assert problems(topology) == []
    assert [topology.broker[1].process(index) for index in (0, 1)] == ["north-1", "north-2"]
    assert topology.broker[0].process(0) == "root"
    tables["router"][0]["name"] = "north-2"
    tables["channel"][0]["between"] = ["north-2", "n2"]
    assert "broker[1].listen: its process 2 is called north-2" in "\n".join(problems(msgspec.convert(tables, Topology)))
