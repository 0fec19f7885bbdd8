"""`chappe deploy generate`: a grid becomes a deployment whose clouds are connected and about equally large."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from chappe.cli._clouds import cut
from chappe.cli._deployment import Deployment, read
from chappe.cli._grids import from_node_link
from chappe.status.topology import Topology
from tests.support.commands import COMMAND, ENVIRONMENT, chappe

EXAMPLE = Path(__file__).parents[2] / "examples" / "grid118.toml"
CASE118 = ("--case", "case118", "--clouds", 4, "--processes", 4)


def generated(folder: Path, *arguments: object) -> Deployment:
    file = folder / "generated.toml"
    chappe("deploy", "generate", *arguments, "-o", file)
    assert "ok" in chappe("deploy", "check", file).stdout
    return read(file)


def topology(deployment: Deployment) -> Topology:
    assert deployment.topology is not None
    return deployment.topology


def clouds_are_connected(of: Topology) -> None:
    for leaf in of.leaves:
        inside = nx.Graph([channel.between for channel in of.channel])
        inside.add_nodes_from(of.routers)
        assert nx.is_connected(inside.subgraph(of.members(leaf)))


def test_the_118_bus_grid_is_the_example(tmp_path: Path) -> None:
    deployment = generated(tmp_path, *CASE118)
    assert (tmp_path / "generated.toml").read_text() == EXAMPLE.read_text()
    of = topology(deployment)
    assert (len(of.router), len(of.channel)) == (118, 179)  # 186 branches, 7 of them parallel
    assert of.children("root") == of.leaves == ["cloud-1", "cloud-2", "cloud-3", "cloud-4"]
    assert [of.number(leaf) for leaf in of.leaves] == [1, 2, 3, 4]
    sizes = [len(of.members(leaf)) for leaf in of.leaves]
    assert max(sizes) <= 1.1 * 118 / 4
    assert min(sizes) >= 0.9 * 118 / 4
    clouds_are_connected(of)
    assert sorted({of.level(channel) for channel in of.channel}) == [1, 2]
    groups = [process for process in deployment.processes if len(process.members) > 1]
    assert len(groups) == 4
    assert [{member.broker and member.broker.name for member in group.members} for group in groups] == [
        {leaf} for leaf in of.leaves
    ]


def test_a_graphml_file(tmp_path: Path) -> None:
    graph: Any = nx.MultiGraph()
    graph.add_node("Bern", Latitude=46.948, Longitude=7.447)
    graph.add_node("Zürich", Latitude=47.377, Longitude=8.541)
    graph.add_node("Chur", Latitude=46.85, Longitude=9.53)
    graph.add_edges_from([("Bern", "Zürich"), ("Bern", "Zürich"), ("Chur", "Chur")])
    graph.add_edge("Zürich", "Chur", latency_ms=7.5)
    nx.write_graphml(graph, tmp_path / "swiss.graphml")
    of = topology(generated(tmp_path, tmp_path / "swiss.graphml", "--base-port", 21_000))
    assert [router.name for router in of.router] == ["Bern", "Z-rich", "Chur"]
    assert [broker.name for broker in of.broker] == ["cloud-1"]  # one cloud is its own root
    assert {channel.between: channel.latency_ms for channel in of.channel} == {
        ("Bern", "Z-rich"): pytest.approx(95.4 / 200, rel=0.01),
        ("Z-rich", "Chur"): 7.5,
    }
    assert (of.router[0].x, of.router[0].y) == (7.447, 46.948)
    assert (of.broker[0].listen, of.router[0].listen) == (("tcp://127.0.0.1:21000",), "tcp://127.0.0.1:21100")


def test_a_json_file_and_a_standby_for_every_broker(tmp_path: Path) -> None:
    graph: Any = nx.grid_2d_graph(4, 5)
    graph = nx.convert_node_labels_to_integers(graph, label_attribute="at")
    nx.set_node_attributes(graph, {node: {"x": at[0] * 100, "y": at[1] * 100} for node, at in graph.nodes("at")})
    file = tmp_path / "mesh.json"
    file.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    options = ("--clouds", 3, "--processes", 5, "--standby", "postgresql://localhost/chappe", "--events-per-s", 5000)
    deployment = generated(tmp_path, file, *options)
    of = topology(deployment)
    assert [router.name for router in of.router] == [str(number) for number in range(20)]
    assert {channel.latency_ms for channel in of.channel} == {0.5}
    assert {router.events_per_s for router in of.router} == {5000}
    assert sorted(len(of.members(leaf)) for leaf in of.leaves) == [6, 7, 7]
    clouds_are_connected(of)
    assert [process.name for process in deployment.processes][:4] == ["root-1", "root-2", "cloud-1-1", "cloud-1-2"]
    assert len(deployment.processes) == 2 * 4 + 5
    assert "postgresql" not in (tmp_path / "generated.toml").read_text().splitlines()[0]  # it may hold a password


def test_a_network_of_topohub(tmp_path: Path) -> None:
    of = topology(generated(tmp_path, "--topohub", "topozoo/Abilene", "--clouds", 2))
    assert len(of.router) == 11
    assert "New-York" in of.routers
    clouds_are_connected(of)


@pytest.mark.parametrize(("rows", "columns", "clouds"), [(3, 3, 9), (6, 7, 2), (9, 9, 5), (1, 12, 4), (2, 30, 7)])
def test_clouds_are_balanced_and_connected(rows: int, columns: int, clouds: int) -> None:
    graph: Any = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    of = cut(len(graph), [*graph.edges], clouds)
    assert of == cut(len(graph), [*graph.edges], clouds)
    assert sorted({*of}) == [*range(clouds)]
    for cloud in range(clouds):
        assert nx.is_connected(graph.subgraph([site for site in graph if of[site] == cloud]))
    sizes = [of.count(cloud) for cloud in range(clouds)]
    assert max(sizes) - min(sizes) <= max(1, 0.2 * len(graph) / clouds + 1)


def test_names_of_routers_are_distinct_and_allowed() -> None:
    nodes = [{"id": "a b"}, {"id": "a-b"}, {"id": "a_b"}, {"id": "€"}, {"id": "x" * 99}, {"id": "a/b", "name": "a b"}]
    links = [{"source": one["id"], "target": other["id"]} for one, other in itertools.pairwise(nodes)]
    grid = from_node_link({"nodes": nodes, "links": links}, "test")
    assert [site.name for site in grid.sites] == ["a-b", "a-b-2", "a_b", "site", "x" * 56, "a-b-3"]
    assert {latency_ms for _, _, latency_ms in grid.branches} == {1.0}


@pytest.mark.parametrize(
    ("arguments", "text", "why"),
    [
        ((), "", "give one of FILE, --case NAME and --topohub NAME"),
        (("--case", "case118", "--topohub", "x"), "", "give one of FILE"),
        (("--case", "case7"), "", "--case case7: pandapower has no such case; there are case"),
        (("--topohub", "x/y"), "", "--topohub x/y: there is no such network"),
        (("grid.csv",), "", "grid.csv: the name must end in .graphml, .xml or .json"),
        (("none.json",), None, "none.json: cannot be read"),
        (("none.graphml",), None, "none.graphml: cannot be read"),
        (("bad.graphml",), "<x", "bad.graphml: not GraphML"),
        (("bad.json",), "{", "bad.json: not JSON"),
        (("bad.json",), "[]", "bad.json: nodes: there is no list of nodes"),
        (
            ("bad.json",),
            '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
            "links[0].target: there is no",
        ),
        (("bad.json",), '{"nodes": [{"id": 1}, {"id": 1}], "links": []}', "nodes[1].id: 1 is there twice"),
        (("bad.json",), '{"nodes": [], "links": []}', "there are no nodes"),
        (("bad.json",), '{"nodes": [{"id": 1}, {"id": 2}], "links": []}', "several pieces: 1 of its 2 sites"),
        (("one.json", "--clouds", "2"), '{"nodes": [{"id": 1}], "links": []}', "--clouds 2: a grid of 1 sites"),
        (("one.json", "--processes", "2"), '{"nodes": [{"id": 1}], "links": []}', "--processes 2: there are 1 routers"),
        (("one.json", "--standby", "a.db"), '{"nodes": [{"id": 1}], "links": []}', "--standby a.db: two processes"),
    ],
)
def test_what_cannot_be_generated_is_explained(
    tmp_path: Path, arguments: tuple[str, ...], text: str | None, why: str
) -> None:
    given = [str(tmp_path / word) if "." in word and word != "a.db" else word for word in arguments]
    if text and given:
        Path(given[0]).write_text(text)
    assert why in chappe("deploy", "generate", *given, code=2).stderr


def test_a_missing_extra_is_one_line(tmp_path: Path) -> None:
    for name in ("pandapower", "topohub"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n")
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(tmp_path), ENVIRONMENT["PYTHONPATH"]))}
    for option, name in (("--case", "pandapower"), ("--topohub", "topohub")):
        done = subprocess.run(
            [*COMMAND, "deploy", "generate", option, "case9"], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 2
        assert done.stderr == f"error: {option} case9: {name} is not installed; pip install 'chappe[grid]'\n"
