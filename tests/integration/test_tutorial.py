"""The programs of the tutorial do what its text says."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chappe.links.ports import free_ports

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"


def programs(page: str, url: str) -> list[str]:
    """The whole programs of a page, told to use another address."""
    blocks = re.findall(r"^```python\n(.*?)^```", (TUTORIAL / page).read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(r"tcp://127\.0\.0\.1:7400", url, block) for block in blocks if block.startswith("import asyncio")]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is ended with the block."""
    with subprocess.Popen([sys.executable, "-u", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def url() -> Iterator[str]:
    """A node as the tutorial starts it, on a free port."""
    with running("-m", "chappe.node", "--dev", "--listen", "tcp://127.0.0.1:0") as node:
        assert node.stdout is not None
        word, address = node.stdout.readline().split()
        assert word == "listening"
        yield address


def test_topics(url: str) -> None:
    (program,) = programs("topics.md", url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "plant/a/alarm b'valve 7' {'severity': 2}\n"


def test_cells(tmp_path: Path) -> None:
    ports = free_ports(2)
    blocks = re.findall(r"^```toml\n(.*?)^```", (TUTORIAL / "cells.md").read_text(), re.MULTILINE | re.DOTALL)
    (program,) = programs("cells.md", f"tcp://127.0.0.1:{ports[0]}")
    with ExitStack() as nodes:
        for block in reversed(blocks):
            file = tmp_path / re.match(r"# (\S+)", block)[1]  # type: ignore[index]
            file.write_text(block.replace("7400", str(ports[0])).replace("7401", str(ports[1])))
            node = nodes.enter_context(running("-m", "chappe.node", "--dev", str(file)))
            assert node.stdout is not None
            while node.stdout.readline() != "serving\n":
                assert node.poll() is None
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
        )
    assert done.stdout == "fr.paris b'a message of bytes' 18\nTrue 5000000\n"
    assert (tmp_path / "five-megabytes").stat().st_size == 5_000_000


def test_variables(url: str) -> None:
    meter, watcher = programs("variables.md", url)
    with running("-c", meter):
        check_values(watcher)


def test_mesh(tmp_path: Path) -> None:
    ports = free_ports(4)
    blocks = re.findall(r"^```toml\n(.*?)^```", (TUTORIAL / "mesh.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    with ExitStack() as stack:
        for number, block in enumerate(blocks):
            file = tmp_path / f"{number}.toml"
            block = re.sub(r"127\.0\.0\.1:740(\d)", lambda found: f"127.0.0.1:{ports[int(found[1]) - 1]}", block)
            file.write_text(block.replace("127.0.0.1:7482", f"127.0.0.1:{ports[3]}"))
            node = stack.enter_context(running("-m", "chappe.node", "--dev", str(file)))
            assert node.stdout is not None
            assert node.stdout.readline() == f"listening tcp://127.0.0.1:{ports[number]}\n"
        stack.enter_context(running("-c", programs("variables.md", f"tcp://127.0.0.1:{ports[0]}")[0]))
        at_the_end = f"tcp://127.0.0.1:{ports[2]}"
        check_values(programs("variables.md", at_the_end)[1])
        before = crossed(ports[3])
        words = ("watch", "meter/#", "--interval", "0.5", "--url", at_the_end, "--count", "5")
        done = subprocess.run(
            [sys.executable, "-m", "chappe.cli", *words], capture_output=True, text=True, timeout=30, check=True
        )
        assert done.stdout.count("meter/frequency") == 5
        assert 5 <= crossed(ports[3]) - before <= 5 + 30 // 2  # two a second, not thirty; and what was under way before


def crossed(port: int) -> int:
    """How many values came over the link from west, as the page of the node in the middle says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.search(r'^chappe_port_status_total\{direction="in",link="west".*?\} ([0-9.]+)$', text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def check_values(watcher: str) -> None:
    """The watcher of the tutorial prints what its meter publishes."""
    with running("-c", watcher) as watching:
        assert watching.stdout is not None
        for _ in range(5):
            value, latency_ns = watching.stdout.readline().split()
            assert 49.9 < float(value) < 50.1
            assert int(latency_ns) > 0
