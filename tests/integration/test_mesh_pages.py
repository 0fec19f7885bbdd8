"""What people see of a mesh: the files of the tutorial, the commands, the pages of a node."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chappe
from tests.support.commands import chappe as command
from tests.support.commands import rows
from tests.support.nodes import NodeProcess, fetch, free_port

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "measuring-mesh.md"


class Tutorial:
    """The three nodes of the tutorial on free ports."""

    def __init__(self, folder: Path) -> None:
        text = PAGE.read_text()
        ports = {str(old): free_port() for old in (7401, 7402, 7403, 7481)}
        text = re.sub(r"\b74[08][123]\b", lambda found: str(ports[found[0]]), text)
        blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) == 3
        self.files = []
        for name, block in zip(("west", "north", "east"), blocks, strict=True):
            path = folder / f"{name}.toml"
            path.write_text(f"{block}\n[measure]\ninterval_s = 0.1\nclients = true\n")
            self.files.append(path)
        (self.program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.web = f"http://127.0.0.1:{ports['7481']}"
        self.west, self.north, self.east = (f"tcp://127.0.0.1:{ports[old]}" for old in ("7401", "7402", "7403"))


@pytest.fixture
async def tutorial(tmp_path: Path) -> AsyncIterator[Tutorial]:
    found = Tutorial(tmp_path)
    nodes = [await NodeProcess.start("--dev", path) for path in found.files]
    try:
        async with chappe.connect(found.west) as client:
            while True:
                measured = await client.list("measured")
                whole = len(await client.list("map")) == 3
                if whole and sum(row["role"] == "node" and row["mean_ms"] is not None for row in measured) == 2:
                    break
        yield found
    finally:
        for node in nodes:
            await node.end()


@pytest.mark.spec("MR-073", "MR-074", "MR-075")
async def test_commands_and_pages_show_links_ways_and_map(tutorial: Tutorial) -> None:
    links = rows(command("links", "--url", tutorial.west, "--json").stdout)
    assert {row["name"] for row in links if row["role"] == "node"} == {"north", "east"}
    assert all(row["mean_ms"] > 0 for row in links if row["role"] == "node")
    table = command("links", "--url", tutorial.west).stdout
    assert "deviation ms" in table
    assert "north" in table
    assert "round trips" in command("links", "--history", "east", "--url", tutorial.west).stdout

    ways = rows(command("route", "west", "east", "--url", tutorial.west, "--json").stdout)
    assert ways[0]["used"]
    assert ways[0]["way"][0] == "west"
    assert ways[0]["way"][-1] == "east"
    assert "in use" in command("route", "west", "east", "--profile", "media", "--url", tutorial.west).stdout
    assert "profile" in command("route", "west", "east", "--profile", "x", "--url", tutorial.west, code=4).stderr
    assert "nowhere" in command("route", "west", "nowhere", "--url", tutorial.west, code=4).stderr

    other = rows(command("route", "north", "east", "--url", tutorial.west, "--json").stdout)
    assert (other[0]["way"][0], other[0]["way"][-1]) == ("north", "east")

    drawn = command("map", "--url", tutorial.west).stdout
    assert "west" in drawn
    assert "cost" in drawn

    status, page = await fetch(f"{tutorial.web}/links")
    assert (status, "mean" in page, "north" in page) == (200, True, True)
    status, page = await fetch(f"{tutorial.web}/links?link=east")
    assert (status, "<svg" in page, "polyline" in page) == (200, True, True)
    assert (await fetch(f"{tutorial.web}/links?link=nobody"))[0] == 404
    status, page = await fetch(f"{tutorial.web}/map")
    assert (status, "<svg" in page, "<circle" in page) == (200, True, True)
    status, page = await fetch(f"{tutorial.web}/map.json")
    assert len(json.loads(page)["rows"]) == 3
    status, page = await fetch(f"{tutorial.web}/links.json?link=east")
    assert json.loads(page)["rows"][-1]["rtt_ms"] > 0
    status, page = await fetch(f"{tutorial.web}/metrics")
    assert 'chappe_link_latency_seconds{link="east",node="west",role="node"}' in page
    assert 'chappe_link_cost{link="north",node="west",role="node"}' in page


async def test_the_program_of_the_tutorial_attaches_to_one_of_two_nodes(tutorial: Tutorial) -> None:
    program = [sys.executable, "-c", tutorial.program]
    done = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=30)
    assert done.stdout in ("attached to west\n", "attached to east\n"), done.stderr


@pytest.mark.spec("MR-002")
async def test_links_to_clients_are_measured_where_the_file_says_so(tutorial: Tutorial) -> None:
    async with chappe.connect(tutorial.west, name="meter-7") as client:
        while True:
            found = [row for row in await client.list("measured") if row["name"] == "meter-7"]
            if found and found[0]["mean_ms"] is not None:
                break
        assert found[0]["role"] == "client"
        assert 0 < found[0]["mean_ms"] < 100
