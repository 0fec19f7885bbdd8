"""Nodes of a measuring mesh, each a process of its own; links through a relay have a delay of their own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from bench.peers.common import process_cpu_s
from bench.processes import Started, serving
from chappe.client.client import Client
from chappe.links.delays import DelayRelay
from chappe.links.ports import free_ports

Pair = tuple[str, str]


def grid(side: int = 3) -> list[Pair]:
    """Links of a square grid of nodes n1, n2, … row by row."""
    pairs = []
    for row in range(side):
        for column in range(side):
            here = row * side + column + 1
            if column + 1 < side:
                pairs.append((f"n{here}", f"n{here + 1}"))
            if row + 1 < side:
                pairs.append((f"n{here}", f"n{here + side}"))
    return pairs


async def window(client: Client) -> int:
    """Round trips that the node of a client knows of each of its links to other nodes, at least."""
    return min(int(row["window"]) for row in await client.list("measured") if row["role"] == "node")


class MeasuringMesh:
    """Running nodes; `relays` make their links slow, and cut them."""

    def __init__(
        self, delays_ms: Mapping[Pair, float | None], sections: str, names: tuple[str, ...] = (), peer: str = ""
    ) -> None:
        """None is a link without a relay. `sections` are in the file of each node, `peer` in each `[[peer]]`.

        `names`: nodes without links.
        """
        self.names = sorted({*names, *(name for pair in delays_ms for name in pair)})
        self.ports = dict(zip(self.names, free_ports(len(self.names)), strict=True))
        self.relays = {
            pair: DelayRelay(self.ports[pair[1]], delay / 1e3)
            for pair, delay in delays_ms.items() if delay is not None
        }  # fmt: skip
        self._links = list(delays_ms)
        self._sections = sections
        self._peer = peer
        self._folder = tempfile.TemporaryDirectory(prefix="chappe-bench-mesh-")
        self._processes: dict[str, Started] = {}

    async def __aenter__(self) -> Self:
        for relay in self.relays.values():
            await relay.start()
        try:
            for name in self.names:
                self._start(name)
            await asyncio.gather(*(asyncio.to_thread(each.until, serving) for each in self._processes.values()))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            await asyncio.to_thread(process.kill)
        for relay in self.relays.values():
            await relay.close()
        self._folder.cleanup()

    def url(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self.ports[name]}"

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds that each node has used."""
        return {name: process_cpu_s(process.pid) for name, process in self._processes.items()}

    def kill(self, name: str) -> None:
        """End the process of a node at once."""
        self._processes[name].kill()

    def _start(self, name: str) -> None:
        path = Path(self._folder.name) / f"{name}.toml"
        text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "{self.url(name)}"\n[log]\nlevel = "error"\n'
        for a, b in self._links:
            if name in (a, b):
                relay = self.relays.get((a, b))
                text += f'[[peer]]\nname = "{b if name == a else a}"\nreconnect_max_s = 0.2\n{self._peer}'
                text += f'url = "tcp://127.0.0.1:{relay.port if relay else self.ports[b]}"\n' if name == a else ""
        path.write_text(text + self._sections)
        self._processes[name] = Started("chappe.node", "--dev", str(path))
