"""The operators' commands as processes of their own, against real brokers and routers."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chappe import connect
from chappe.demo import grid
from chappe.links.ports import free_ports
from tests.support.commands import ENVIRONMENT, chappe, read_until, rows, started

pytestmark = [pytest.mark.timeout(180), pytest.mark.may_leak("the deployment runs for all tests of this module")]
WAIT_S = 30.0


class Plane:
    """Two clouds below a root that run, and the commands of an operator with their file."""

    def __init__(self, file: Path, urls: dict[str, str]) -> None:
        self.file = file
        self.urls = urls

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """What a command says, stdout or else stderr."""
        done = chappe(*arguments, "-d", self.file, code=code)
        return done.stdout or done.stderr

    def rows(self, what: str, *options: object) -> list[dict[str, Any]]:
        """What `chappe show` says."""
        return rows(chappe("show", what, "--json", "-d", self.file, *options).stdout)

    @staticmethod
    def cloud(router: str) -> str:
        """Its leaf broker."""
        return next(cloud for cloud, routers in grid.CLOUDS.items() if router in routers)

    def known(self, what: str, broker: str) -> list[dict[str, Any]]:
        """The same without a command, for waiting."""
        return asyncio.run(_listed(self.urls[broker], what))

    @contextmanager
    def published(self, name: str, router: str = "n1", rate: int = 20) -> Iterator[None]:
        """A variable whose values are 1, 2, 3 and so on."""
        values = range(1, 2000)
        with started("pub", "--variable", name, *values, "--rate", rate, "--url", self.urls[router]):
            eventually(lambda: any(f"{row['publisher']}/{row['variable']}" == name
                                   for row in self.known("publications", self.cloud(router))))  # fmt: skip
            yield

    @contextmanager
    def watched(self, name: str, router: str, *options: object) -> Iterator[Any]:
        """The lines of a subscriber."""
        with started("watch", name, "--wait", 20, "--json", "--url", self.urls[router], *options) as process:
            assert process.stderr is not None
            read_until(process.stderr, "watching")
            yield process.stdout


async def _listed(url: str, what: str) -> list[dict[str, Any]]:
    async with connect(url, name="test") as client:
        return await client.list(what)


def eventually(condition: Callable[[], Any]) -> None:
    """Ask brokers until the condition holds."""
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    ports = free_ports(grid.NEEDED)
    file = grid.write(tmp_path_factory.mktemp("plane"), ports)
    with started("up", file, "--in-process") as up:
        assert up.stdout is not None
        read_until(up.stdout, "3 brokers, 6 routers, 8 channels serve")
        running = Plane(file, grid.urls(ports))
        eventually(lambda: sum(row["up"] for row in running.known("routers", "root")) == len(grid.ROUTERS))
        yield running
        up.terminate()
        assert up.wait(40) == 0


@pytest.mark.spec("GS-011")
def test_brokers_know_what_the_file_says(plane: Plane) -> None:
    north = plane.rows("routers", "-b", "north")
    assert {(row["name"], row["cloud"], row["x"], row["y"], row["up"]) for row in north} == {
        (name, "north", *grid.PLACES[name], True) for name in grid.CLOUDS["north"]
    }
    channels = {frozenset((row["a"], row["b"])): row for row in plane.rows("channels", "-b", "root")}
    assert channels.keys() == {frozenset(pair) for pair in grid.BETWEEN}
    assert {(row["latency_ms"], row["level"], row["owner"]) for row in channels.values()} == {(2.0, 2, "root")}
    assert {row["name"] for row in plane.rows("children", "-b", "root")} == {"north", "south"}
    assert {row["name"]: row["routers_up"] for row in plane.rows("clouds", "-b", "root")} == {"north": 3, "south": 3}
    overview = {row["broker"]: row for row in plane.rows("brokers")}
    assert overview.keys() == {"root", "north", "south"}
    assert overview["north"]["routers up"] == 3
    assert "n2" in plane("show", "routers")


@pytest.mark.spec("GS-010")
def test_a_broker_is_found_by_its_address_or_by_the_file(plane: Plane) -> None:
    by_address = rows(chappe("show", "routers", "--json", "--url", plane.urls["south"]).stdout)
    assert by_address == plane.rows("routers", "-b", "south")
    dead = "tcp://127.0.0.1:1"
    second = chappe("show", "modes", "--json", "--url", f"{dead},{plane.urls['south']}")
    assert rows(second.stdout)[0]["broker"] == "south"
    assert "an inner broker shows" in chappe("show", "entities", "--url", plane.urls["root"], code=4).stderr


def test_paths_of_a_variable_into_both_clouds(plane: Plane) -> None:
    with (
        plane.published("meter/a"),
        plane.watched("meter/a", "s3", "--interval", 0.5) as far,
        plane.watched("meter/a", "n2"),
    ):
        # By rounds of a publisher at 20 a second, not by its values: on a busy machine it leaves rounds out, and
        # publishes twice in another.
        rounds: list[int] = []
        while len(set(rounds)) < 3:
            rounds.append(round(json.loads(far.readline())["created"] * 20 / 1e9))
        assert rounds == sorted(rounds)
        assert {(each - rounds[0]) % 10 for each in rounds} == {0}
        found = rows(plane("paths", "meter/a", "--json"))
        ways = sorted((row["routers"] for row in found), key=len)
        assert ways[0] == ["n1", "n2"]
        assert (ways[1][0], ways[1][-1], len(ways[1])) == ("n1", "s3", 4)
        assert {frozenset(pair) for pair in zip(ways[1], ways[1][1:], strict=False)} <= {
            frozenset(pair) for pair in grid.CHANNELS
        }
        assert sorted(row["intervals_ms"][0] for row in found) == [50, 500]
        text = plane("paths", "meter/a")
        assert "every 500 ms" in text
        assert " -> ".join(ways[1]) in text
        assert "-> (" in chappe("paths", "meter/a", "--url", plane.urls["north"]).stdout
        loads = {row["resource"]: row["load"][0] for row in plane.rows("loads", "-b", "north")}
        assert loads["router/n1"] == 20
        assert {row["interval_ms"] for row in plane.rows("subscriptions")} == {50, 500}
        assert len(plane.rows("entities")) >= 3
    assert "no broker that was asked has a path" in plane("paths", "meter/none", code=1)


def test_modes_from_the_root_win(plane: Plane) -> None:
    assert "root: mode 5" in plane("mode", "set", 5)
    assert {row["broker"]: row["mode"] for row in plane.rows("modes")} == {"root": 5, "north": 5, "south": 5}
    assert "5" in plane("mode", "show")
    refused = chappe("mode", "set", 6, "-d", plane.file, "-b", "north", code=4)
    assert "Traceback" not in refused.stderr
    assert {row["mode"] for row in plane.rows("modes")} == {5}
    plane("mode", "set", 0)
    assert {row["mode"] for row in plane.rows("modes")} == {0}


def test_floods_are_set_and_cleared(plane: Plane) -> None:
    with plane.published("meter/b"):
        plane("flood", "set", "meter/b", "--modes", "0-2")
        listed = rows(plane("flood", "list", "--json"))
        assert {row["broker"] for row in listed} == {"root", "north", "south"}
        assert {tuple(row["levels"][:4]) for row in listed} == {(2, 2, 2, None)}
        assert "0-2: 2" in plane("flood", "list")
        plane("flood", "clear", "meter/b")
        assert rows(plane("flood", "list", "--json")) == []
        assert "no floods" in plane("flood", "list")
    chappe("flood", "set", "meter/none", "-d", plane.file, code=1)


@pytest.mark.spec("GS-139", "GS-140")
def test_a_function_over_two_clouds_says_where_it_runs(plane: Plane) -> None:
    with plane.published("meter/d"), plane.published("far/d", router="s1"):
        inputs = ("--input", "meter/d", "--input", "far/d")
        options = ("--calculator", "builtin:sum", "--trigger", "time", "--interval-ms", 500)
        said = plane("condense", "create", "both/sum", *inputs, *options, "--edge", "n2")
        assert "both/sum is created, runs at north/" in said
        assert "other clouds compute both@south/sum for it" in said
        with plane.watched("both/sum", "s2") as lines:
            first, second = (json.loads(lines.readline()) for _ in range(2))
            assert second["value"] > first["value"]
        listed = {row["publisher"]: row for row in rows(plane("condense", "list", "--json"))}
        assert {name: row["cloud"] for name, row in listed.items()} == {"both": "north", "both@south": "south"}
        plane("condense", "remove", "both/sum", "--edge", "s1")
        eventually(lambda: not rows(plane("condense", "list", "--json")))


@pytest.mark.spec("GS-140")
def test_a_function_is_created_from_the_command_line(plane: Plane, tmp_path: Path) -> None:
    file = tmp_path / "twice.toml"
    file.write_text('inputs = ["meter/c"]\ncalculator = "builtin:max"\ninterval_ms = 50\n')
    with plane.published("meter/c"):
        options = ("--calculator", "builtin:sum", "--interval-ms", 50, "--edge", "n2", "--creator", "ada")
        elsewhere = ("--calculator", "builtin:sum", "--edge", "s1")
        plane("condense", "create", "area/sum", "--input", "meter/c", *elsewhere)  # the input is in the other cloud
        (row,) = rows(plane("condense", "list", "--json"))
        assert (row["broker"], row["home"], row["creator"]) == ("north", "south", "operator")
        plane("condense", "remove", "area/sum", "--edge", "s1")
        assert "no functions" in plane("condense", "list")
        plane("condense", "create", "area/sum", "--input", "meter/c", *options)
        plane("condense", "create", "area/max", "--file", file, "--edge", "n2", "--creator", "ada")
        with plane.watched("area/sum", "s2") as lines:
            first, second = (json.loads(lines.readline()) for _ in range(2))
            assert second["value"] > first["value"]  # it counts; one that came too soon after another is left out
        listed = {f"{row['publisher']}/{row['variable']}": row for row in rows(plane("condense", "list", "--json"))}
        assert listed.keys() == {"area/sum", "area/max"}
        assert (listed["area/max"]["creator"], listed["area/max"]["calculator"]) == ("ada", "builtin:max")
        assert "builtin:sum" in plane("condense", "list")
        plane("condense", "remove", "area/max", "--edge", "n2", "--creator", "eve", code=4)
        for name in ("area/sum", "area/max"):
            plane("condense", "remove", name, "--edge", "n2", "--creator", "ada")
        assert "no functions" in plane("condense", "list")
        wrong = plane(
            "condense", "create", "area/x", "--input", "meter/c", "--calculator", "builtin:none", "-e", "n2", code=4
        )
        assert "builtin:sum" in wrong
    file.write_text("colour = 1\n")
    assert "colour: this key does not exist" in plane("condense", "create", "a/b", "--file", file, "-e", "n2", code=2)


def test_the_programs_of_the_tutorial_do_what_it_says(plane: Plane) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial" / "managed.md").read_text()
    tables = [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    example = tomllib.loads((Path(__file__).parents[2] / "examples" / "two-clouds.toml").read_text())
    assert tables[0]["broker"] == example["broker"]
    assert tables[1]["router"][0].items() <= example["router"][0].items()
    assert tables[1]["channel"][0] == example["channel"][0]
    first, second = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with plane.published("meter/frequency", rate=30):
        with program(first, plane.urls["s3"]) as lines:
            assert "redundancy=2" in lines.readline()
            assert every(3, lines, times=3)
            assert len(rows(plane("paths", "meter/frequency", "--json"))) == 2
        with program(second, plane.urls["s3"]) as lines:
            assert every(30, lines, times=1)
            plane("mode", "set", 1)
            while "mode 1" not in lines.readline():
                pass
            assert every(1, lines, times=3)
            plane("mode", "set", 0)


def every(step: int, lines: Any, times: int) -> bool:
    """A subscriber gets each so many-th value, so often in a row; where the publisher is late it may be another."""
    values: list[float] = []
    for _ in range(100):
        values.append(float(lines.readline().split()[0]))
        if len(values) > times and all(b - a == step for a, b in itertools.pairwise(values[-times - 1 :])):
            return True
    return False


@contextmanager
def program(text: str, url: str) -> Iterator[Any]:
    """The lines that a program of the tutorial prints, told to use another address."""
    text = text.replace("tcp://127.0.0.1:7606", url)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", text], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            yield process.stdout
        finally:
            process.terminate()


@pytest.mark.spec("GS-014", "GS-172")
def test_the_topology_changes_while_it_runs(plane: Plane, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"tcp://127.0.0.1:{port}"
    plane("topology", "add", "router", "n4", "-b", "north", "--x", 0, "--y", 20, "--events-per-s", 5000)
    plane("topology", "add", "channel", "n1", "n4", "--to", url, "--latency-ms", 0.3, "-b", "north")
    assert "Xn4" in plane("map")  # it is known, and not there
    file = tmp_path / "n4.toml"
    file.write_text(
        f'[node]\nname = "n4"\n[[listen]]\nurl = "{url}"\n[broker]\nname = "north"\nurls = ["{plane.urls["north"]}"]\n'
    )
    with started("node", file, "--dev") as node:
        assert node.stdout is not None
        read_until(node.stdout, "serving")
        eventually(lambda: any(row["up"] for row in plane.known("channels", "north") if row["b"] == "n4"))
        assert "routers 7 of 7 up" in plane("map")
        with plane.published("meter/d"):
            plane.urls["n4"] = url
            with plane.watched("meter/d", "n4") as lines:
                assert json.loads(lines.readline())["value"] > 0
                assert "n1 -> n4" in plane("paths", "meter/d")
                refused = chappe("topology", "remove", "channel", "n1", "n4", "-d", plane.file, "-b", "north", code=4)
                assert "n1" in refused.stderr
            eventually(lambda: not plane.known("subscriptions", "north"))
        plane("topology", "remove", "channel", "n1", "n4", "-b", "north")
        plane("topology", "remove", "router", "n4", "-b", "north")
        node.terminate()
        node.wait(30)
    assert {row["name"] for row in plane.rows("routers", "-b", "north")} == {*grid.CLOUDS["north"]}
    plane("topology", "add", "child", "west")
    assert "west" in {row["name"] for row in plane.rows("children", "-b", "root")}
    plane("topology", "remove", "child", "west")
    assert "west" not in {row["name"] for row in plane.rows("children", "-b", "root")}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show",), "say which broker: --url URL, or --deployment FILE"),
        (("mode", "show", "--broker", "x"), "--broker x: needs --deployment FILE"),
        (("mode", "set", "16", "--url", "tcp://127.0.0.1:1"), "15"),
        (("flood", "set", "x", "--url", "tcp://127.0.0.1:1"), "'x' is no variable"),
        (("flood", "set", "x/y", "--modes", "99", "--url", "tcp://127.0.0.1:1"), "write modes from 0 to 15"),
        (("paths", "x", "--url", "tcp://127.0.0.1:1"), "'x' is no variable"),
        (("condense", "create", "a/b", "--url", "tcp://127.0.0.1:1"), "--input is required"),
        (("condense", "remove", "a/b"), "say through which edge"),
        (("condense", "remove", "a/b", "--edge", "x"), "--edge x: needs --deployment"),
        (("topology", "add", "router", "x", "-d", "GRID"), "name its leaf with --broker"),
        (("topology", "remove", "channel", "bus-1", "x", "-d", "GRID"), "router x is not in the file"),
        (("map", "-d", "GRID", "-b", "west"), "has no such broker (brokers: root, cloud-1"),
        (("condense", "remove", "a/b", "-d", "GRID"), "--edge is required"),
        (("condense", "remove", "a/b", "-d", "GRID", "-e", "x"), "has no such edge"),
        (("show", "-d", "none.toml"), "none.toml: cannot be read"),
        (("show", "-d", "MESH"), "has [nodes] and no brokers"),
    ],
)
def test_a_command_that_lacks_something_says_what(arguments: tuple[str, ...], why: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    files = {"GRID": examples / "grid118.toml", "MESH": examples / "demo" / "mesh.toml"}
    done = chappe(*(files.get(word, word) for word in arguments), code=2)
    assert why in " ".join(done.stderr.split())


def test_no_broker_at_that_address() -> None:
    for command in (("show",), ("mode", "set", 3), ("map",), ("paths", "a/b"), ("flood", "clear", "a/b")):
        chappe(*command, "--url", "tcp://127.0.0.1:1", code=3)
