"""Latencies over time: what is written is read, what is wrong is said, and links follow them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from chappe.errors import ConfigError
from chappe.sim.latencies import Latencies, read, walk
from chappe.sim.network import Network
from chappe.sim.plan import build, topology


@pytest.fixture
def some() -> Latencies:
    ms = np.array([[1.0, 2.5], [3.0, math.nan], [math.nan, 7.25]])
    return Latencies(np.array([0.0, 5.0, 12.5]), (("a", "b"), ("b", "c")), ms)


@pytest.mark.parametrize("end", ["csv", "json", "npz"])
def test_what_is_written_is_read(some: Latencies, tmp_path: Path, end: str) -> None:
    path = tmp_path / f"x.{end}"
    some.write(path)
    again = read(path)
    assert again.links == some.links
    np.testing.assert_array_equal(again.times_s, some.times_s)
    np.testing.assert_array_equal(again.ms, some.ms)


def test_a_list_of_objects_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps([{"time": 0, "a": "n2", "b": "n1", "ms": 4}, {"time": 1, "a": "n1", "b": "n2", "ms": 5}])
    )
    found = read(path)
    assert found.links == (("n1", "n2"),)
    assert found.ms.tolist() == [[4.0], [5.0]]
    assert found.plan("mine").links == (("n1", "n2", 4.0),)


def test_a_value_stays_in_force_until_the_next(some: Latencies) -> None:
    assert some.over(some.plan("p")).tolist() == [[1.0, 2.5], [3.0, 2.5], [3.0, 7.25]]


def test_links_follow_a_matrix(some: Latencies) -> None:
    network = Network(1)
    build(network, some.plan("p"))
    some.play(network)
    seen = []
    for _ in range(3):
        network.run(4.5)
        seen.append(
            (network.link("a", "b").pipes[0].quality.delay_ms, network.link("c", "b").pipes[1].quality.delay_ms)
        )
    assert seen == [(1.0, 2.5), (3.0, 2.5), (3.0, 7.25)]


def test_a_matrix_with_a_link_that_is_not_there_changes_nothing(some: Latencies) -> None:
    network = Network(1)
    for name in ("a", "b"):
        network.add(name)
    network.join("a", "b")
    with pytest.raises(ConfigError, match="no link b-c"):
        some.play(network)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.txt", "", "must end in"),
        ("x.csv", "", "first line"),
        ("x.csv", "time,a,b,ms\n0,a,b,1\n1,a,b\n", "line 3"),
        ("x.csv", "time,a,b,ms\n0,a,b,fast\n", "line 2"),
        ("x.csv", "time,a,b,ms\n0,a,b,-1\n", "below 0"),
        ("x.csv", "time,a,b,ms\n-1,a,b,1\n", "from 0 on"),
        ("x.csv", "time,a,b,ms\n0,a,a,1\n", "not a link"),
        ("x.csv", "time,a,b,ms\n0,a,b,nan\n", "no latency is given"),
        ("x.csv", "time,a,b,ms\n", "do not fit"),
        ("x.json", "[", "x.json: "),
        ("x.json", "3", "a list of objects"),
        ("x.json", '[{"time": 0}]', "'a' is missing|a is missing"),
        ("x.json", '{"times": [0, 1], "links": [["a", "b"]], "ms": [[1]]}', "do not fit"),
        ("x.json", '{"times": [0, 0], "links": [["a", "b"]], "ms": [[1], [2]]}', "later than"),
        ("x.json", '{"times": [0], "links": [["a", "b"], ["b", "a"]], "ms": [[1, 2]]}', "twice"),
        ("x.npz", "no zip", "x.npz: "),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read(path)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / "no.csv")


def test_a_walk_stays_near_its_links_and_has_bad_times() -> None:
    plan = topology("topozoo/Abilene")
    found = walk(plan, 600, random.Random(4))
    base = np.array([ms for _, _, ms in plan.links])
    assert found.ms.shape == (120, 14)
    assert (found.ms >= 0.8 * base).all()
    calm = found.ms < 1.5 * base
    assert 0.5 < calm.mean() < 1.0
    assert np.array_equal(found.ms, walk(plan, 600, random.Random(4)).ms)
