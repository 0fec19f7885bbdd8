"""A link of known rate between two nodes, and what one of them believes its bandwidth to be, over time."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.measured_nodes import Rows
from bench.measured_run import measure
from bench.mesh import url
from bench.namespaces import Namespaces, Shape
from bench.shaped import ShapedRelay
from chappe.events.member_settings import MemberSettings
from chappe.links.ports import free_ports
from chappe.security.authority import Authority
from chappe.sim.link import Quality
from chappe.sim.network import Network

MBIT = 125_000.0  # bytes/s
WITHIN = 0.2
LEAST_QUEUE = 32_000  # bytes
LOOK_S = 0.1
JITTER_MS = 0.1  # mean of what a simulated packet takes longer
PORT = 7400
SWITCH_S = 0.0002  # relays are threads: none keeps another waiting for longer


@dataclass(frozen=True)
class Line:
    """A link that carries `mbit` Mbit/s, `delay_ms` each way, behind a queue of one bandwidth-delay product."""

    mbit: float
    delay_ms: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.mbit * MBIT

    @property
    def queue_bytes(self) -> int:
        return max(LEAST_QUEUE, round(self.rate * 2 * self.delay_ms / 1e3))

    def __str__(self) -> str:
        return f"{self.mbit:g} Mbit/s, {self.delay_ms:g} ms"


@dataclass(frozen=True)
class Run:
    """Estimates over time: (s, bytes/s), and what finding them out took of the line."""

    line: Line
    points: Sequence[tuple[float, float]]
    trains: float  # bytes of trains, as a share of what the line could carry meanwhile
    share: float  # all bytes towards the other end, likewise

    @property
    def error(self) -> float:
        """The last estimate is off by this share."""
        return abs(self.points[-1][1] / self.line.rate - 1) if self.points else math.nan

    @property
    def converged_s(self) -> float:
        """From when on the estimate was within a fifth; infinite if it was not at the end."""
        since = math.inf
        for at, estimate in reversed(self.points):
            if not abs(estimate / self.line.rate - 1) <= WITHIN:
                break
            since = at
        return since


def simulated(line: Line, seconds: float, seed: int = 1) -> Run:
    """On a modelled link in virtual time."""
    settings = MemberSettings(mesh=False, costs=False, bandwidth=True)
    network = Network(seed, settings=MemberSettings(mesh=False, measures=False, costs=False))
    near, _ = network.add("near", settings=settings), network.add("far")
    quality = Quality(delay_ms=line.delay_ms, jitter_ms=JITTER_MS, rate=line.rate, queue_bytes=line.queue_bytes)
    connection = network.join("near", "far", quality)
    network.start()
    points = []
    for look in range(round(seconds / LOOK_S)):
        network.run(LOOK_S)
        for link in near.member.links if near.member is not None else ():
            if link.trains is not None:
                points.append((look * LOOK_S, link.trains.estimate))
                spent = link.trains.spent_bytes
    capacity = line.rate * seconds
    return Run(line, points, spent / capacity, connection.pipes[0].sent / capacity)


def on_sockets(lines: Sequence[Line], seconds: float) -> list[Run]:
    """Between real nodes through shaping relays, all lines at the same time."""
    far_ports, near_ports = free_ports(len(lines)), free_ports(len(lines))
    with ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_S)
        relays = [
            stack.enter_context(ShapedRelay(port, line.rate, line.queue_bytes, line.delay_ms / 1e3))
            for line, port in zip(lines, far_ports, strict=True)
        ]
        far = [_file("far", at, url(port), peer=f"near-{at}") for at, port in enumerate(far_ports)]
        near = [
            _file("near", at, url(port), peer=f"far-{at}", relay=url(relays[at].port))
            for at, port in enumerate(near_ports)
        ]
        found = measure(far, near, {f"near-{at}": seconds for at in range(len(lines))})
        carried = [relay.carried for relay in relays]
    return _runs(lines, found, carried, seconds)


def in_namespaces(lines: Sequence[Line], seconds: float) -> list[Run]:
    """Between real nodes over TLS in two network namespaces: TCP starts slowly, and what finds a queue full is lost."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-bench-bandwidth-"))) / "pki"
        shapes = {line: Shape(line.delay_ms, line.rate, line.queue_bytes) for line in lines}
        spaces = stack.enter_context(Namespaces(shapes))
        authority = Authority.create(folder, datetime.now(UTC), name="bench authority", days=2)
        far, near = [], []
        for at, (address, port) in enumerate(zip(spaces.far.values(), free_ports(len(lines)), strict=True)):
            authority.issue(f"far-{at}", "node", datetime.now(UTC), hosts=[address], days=1)
            authority.issue(f"near-{at}", "node", datetime.now(UTC), days=1)
            there = f"tls://{address}:{PORT}"
            far.append(_file("far", at, there, peer=f"near-{at}", folder=folder))
            near.append(_file("near", at, f"tls://127.0.0.1:{port}", peer=f"far-{at}", relay=there, folder=folder))
        found = measure(
            far, near, {f"near-{at}": seconds for at in range(len(lines))}, dev=False,
            far_prefix=spaces.command(spaces.far_name), near_prefix=spaces.command(spaces.near_name),
        )  # fmt: skip
        carried = list(spaces.carried.values())
    return _runs(lines, found, carried, seconds)


def _runs(lines: Sequence[Line], found: dict[str, Rows], carried: Sequence[int], seconds: float) -> list[Run]:
    runs = []
    for at, line in enumerate(lines):
        rows = found[f"near-{at}"][f"far-{at}"]
        capacity = line.rate * seconds
        spent = rows[-1][2] if rows else 0.0
        runs.append(Run(line, [(row[0], row[1]) for row in rows], spent / capacity, carried[at] / capacity))
    return runs


def _file(side: str, at: int, url: str, peer: str, relay: str = "", folder: Path | None = None) -> str:
    name = f"{side}-{at}"
    text = f'[node]\nname = "{name}"\n[[listen]]\nurl = "{url}"\n'
    if folder is not None:
        text += f'[tls]\nca = "{folder}/ca.pem"\ncert = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"\n'
    text += f'[[peer]]\nname = "{peer}"\n'
    return f'{text}url = "{relay}"\n[measure]\nbandwidth = true\n' if relay else f"{text}[measure]\non = false\n"
