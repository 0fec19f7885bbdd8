"""Cells as processes, each on a host of its own, and the programs beside them."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import networkx

import chappe
from bench.cells.hosts import Hosts, Line, Pair
from bench.processes import Answering, Started, serving

PORT = 7400

# The experiment of the source: eight machines at three sites, two of them behind firewalls; bytes a second, ms.
SITES = {
    "Site1.Host1": "1", "Site1.Host2": "1",
    "Site2.Host1": "2", "Site2.Host2": "2", "Site2.Host3": "2",
    "Site3.Host1": "3", "Site3.Host2": "3", "Site3.Host3": "3",
}  # fmt: skip
CLOSED = ("Site2.Host3", "Site3.Host3")
RATES = {
    frozenset("1"): (4e6, 0.3), frozenset("2"): (4e6, 0.3), frozenset("3"): (4e6, 0.3),
    frozenset("12"): (1.2e6, 60.0), frozenset("23"): (1.0e6, 20.0), frozenset("13"): (0.6e6, 75.0),
}  # fmt: skip


class CellSites:
    """Cells on the hosts of these lines; the first names in `known` are whom each of the others is told about."""

    def __init__(
        self, lines: Mapping[Pair, Line], closed: Iterable[str] = (), known: int = 1, section: str = "update_s = 1.0\n"
    ) -> None:
        self.hosts = Hosts(lines, closed)
        self._closed = frozenset(closed)
        self._known = known
        self._section = section
        self._folder = tempfile.TemporaryDirectory(prefix="chappe-bench-cells-")
        self.nodes: dict[str, Started] = {}
        self._programs: list[Answering] = []

    def __enter__(self) -> Self:
        self.hosts.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
        self.hosts.close()
        self._folder.cleanup()

    def url(self, host: str) -> str:
        return f"tcp://{self.hosts.address(host)}:{PORT}"

    def start(self, *names: str) -> None:
        """Run these cells, and wait until they serve."""
        for name in names:
            self.nodes[name] = self._start(name)
        for name in names:
            self.nodes[name].until(serving)

    def kill(self, name: str) -> None:
        """End the process of a cell at once."""
        self.nodes[name].kill()

    def _start(self, name: str) -> Started:
        others = [each for each in self.hosts.names if each != name and each not in self._closed][: self._known]
        text = f'[node]\nname = "{node_name(name)}"\n[log]\nlevel = "error"\n[measure]\nbandwidth = true\n'
        text += f'[[listen]]\nurl = "{self.url(name)}"\n[cells]\n{self._section}'
        text += "reachable = false\n" if name in self._closed else ""
        for other in others:
            text += f'[[peer]]\nname = "{node_name(other)}"\nurl = "{self.url(other)}"\nreconnect_max_s = 0.5\n'
        path = Path(self._folder.name) / f"{name}.toml"
        path.write_text(text)
        with self.hosts.inside(name):
            return Started("chappe.node", "--dev", str(path))

    async def links(self) -> set[Pair]:
        """Ordered pairs of hosts that have a link of cells now."""
        hosts = {node_name(host): host for host in self.hosts.names}
        found: set[Pair] = set()
        for name, node in self.nodes.items():
            if node.runs:
                with self.hosts.inside(name):
                    client = await chappe.connect(self.url(name), name="links")
                async with client:
                    for row in await client.list("cell_links"):
                        if row["status"] == "up":
                            found |= {(name, hosts[row["name"]]), (hosts[row["name"]], name)}
        return found

    def program(self, host: str, verb: str, *arguments: str) -> Lines:
        """A process of `bench.cells.endpoint` on that host."""
        with self.hosts.inside(host):
            return Lines("bench.cells.endpoint", verb, *arguments)


class Lines(Started):
    """A process that prints lines of JSON."""

    def said(self) -> list[dict[str, Any]]:
        """All of them so far."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def ready(self) -> None:
        """It can begin."""
        self.until(lambda line: '"ready"' in line)

    def done(self, within_s: float) -> dict[str, Any]:
        """The last line."""
        self.until(lambda line: '"done"' in line, within_s)
        return next(each for each in self.said() if each.get("done"))


def node_name(host: str) -> str:
    """How the cell on that host is called."""
    return host.replace(".", "-").lower()


def maximum_flow(lines: Mapping[Pair, Line], source: str, sink: str) -> float:
    """Bytes a second by the rates that were set."""
    graph = networkx.DiGraph()
    for (one, other), line in lines.items():
        graph.add_edge(one, other, capacity=line.rate)
    return float(networkx.maximum_flow_value(graph, source, sink))


def wait(condition: Any, within_s: float, what: str) -> None:
    """Until it holds; an error names what did not come."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {within_s:g} s")
        time.sleep(0.2)
