"""A managed mesh under test: a deployment started as a user would, on free ports, with its processes at hand."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

from bench.peers.common import process_cpu_s
from bench.processes import START_S, Started, serving
from bench.protocols import Link, chappe
from chappe.errors import ChappeError, LinkError
from chappe.links.ports import free_ports
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.status.topology_checks import problems
from chappe.wire import control

LEADS_S = 10.0  # longer than a lease of brokers


def url(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def topology(
    clouds: Mapping[str, Sequence[str]],
    channels: Sequence[tuple[str, str]],
    *,
    inner: Sequence[str] = (),
    standby: str = "",
    together: bool = False,
    latency_ms: float = 0.1,
) -> Topology:
    """A deployment on free ports: `clouds` are leaf brokers with their routers, below `root` where there are several.

    `inner` names routers that have no clients; `standby` is a PostgreSQL url that two processes of each leaf share;
    `together`: all routers in one process.
    """
    processes = 2 if standby else 1
    names = [name for routers in clouds.values() for name in routers]
    ports = iter(free_ports(len(names) + processes * len(clouds) + 1))
    brokers = []
    parent = "root" if len(clouds) > 1 else ""
    if parent:
        brokers.append(BrokerSpec(name=parent, listen=(url(next(ports)),)))
    for number, cloud in enumerate(clouds, 1):
        listen = tuple(url(next(ports)) for _ in range(processes))
        brokers.append(BrokerSpec(name=cloud, parent=parent, listen=listen, store=standby, number=number))
    routers = [
        RouterSpec(
            name=name, cloud=cloud, listen=url(next(ports)), edge=name not in inner, events_per_s=2e6,
            process="routers" if together else "",
        )
        for cloud, members in clouds.items()
        for name in members
    ]  # fmt: skip
    return Topology(
        broker=tuple(brokers),
        router=tuple(routers),
        channel=tuple(ChannelSpec(between=pair, latency_ms=latency_ms) for pair in channels),
        dev=True,
    )


class Mesh:
    """A running deployment."""

    def __init__(self, deployment: Topology, *, keep_going: bool = True) -> None:
        found = problems(deployment)
        if found:
            raise ChappeError(f"the deployment of the bench is wrong: {found[0]}")
        self.topology = deployment
        self.folder = Path(tempfile.mkdtemp(prefix="chappe-bench-mesh-"))
        self.file = self.folder / "deployment.toml"
        self.file.write_text(_toml(deployment))
        self._restarted: list[Started] = []
        options = ["--keep-going"] if keep_going else []
        self._process = Started("chappe.cli", "up", str(self.file), *options, folder=self.folder)
        try:
            self._process.until(lambda line: line.endswith("serve"))
            self._await_brokers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Mesh:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await_brokers(self) -> None:
        """Until every leaf has all its routers, and all its channels are up."""
        deadline = time.monotonic() + START_S
        missing = "no broker answered"
        while time.monotonic() < deadline:
            try:
                missing = self._missing()
            except (ChappeError, OSError) as error:
                missing = str(error)
            if not missing:
                return
            time.sleep(0.1)
        raise LinkError(f"the deployment is not ready within {START_S:g} s: {missing}; it said: {self._process.last()}")

    def _missing(self) -> str:
        inner = {broker.parent for broker in self.topology.broker}
        for broker in self.topology.broker:
            if broker.name in inner:
                continue
            with self.operator(broker.name) as link:
                for what in ("routers", "channels"):
                    away = [row for row in rows(link, what) if not row["up"]]
                    if away:
                        return f"{what} of {broker.name} not up: {away[0]}"
        return ""

    def said(self) -> list[str]:
        """Every line of its processes so far."""
        return self._process.lines

    @contextlib.contextmanager
    def operator(self, broker: str) -> Iterator[Link]:
        """A connection to the process of a broker that leads; when one has just died, the other does in a while."""
        deadline = time.monotonic() + LEADS_S
        while (link := self._leading(broker)) is None:
            if time.monotonic() > deadline:
                raise LinkError(f"no process of broker {broker} leads; the deployment said: {self._process.last()}")
            time.sleep(0.1)
        try:
            yield link
        finally:
            link.sock.close()

    def _leading(self, broker: str) -> Link | None:
        for address in self.topology.brokers[broker].listen:
            with contextlib.suppress(ChappeError, OSError):
                link = chappe.connect(("127.0.0.1", int(address.rpartition(":")[2])), None)
                try:
                    rows(link, "modes")
                    return link
                except ChappeError:
                    link.sock.close()
        return None

    def port(self, router: str) -> int:
        return int(self.topology.routers[router].listen.rpartition(":")[2])

    def pid(self, name: str) -> int:
        """The process of a router or broker that runs alone."""
        again = [psutil.Process(process.pid) for process in self._restarted if process.runs]
        for child in [*again, *self._process.children()]:
            with contextlib.suppress(psutil.Error):
                if child.cmdline()[-2:] == ["--only", name]:
                    return int(child.pid)
        raise ChappeError(f"no process of the deployment runs {name!r}")

    def cpu_s(self, name: str) -> float:
        return process_cpu_s(self.pid(name))

    def restart(self, name: str) -> None:
        """Start a router or broker whose process is gone; returns when it serves."""
        process = Started("chappe.cli", "up", str(self.file), "--only", name, folder=self.folder)
        self._restarted.append(process)
        process.until(serving)

    def close(self) -> None:
        for process in self._restarted:
            process.kill()
        self._process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def write_deployment(deployment: Topology) -> Iterator[Path]:
    """The file of a deployment, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="chappe-bench-mesh-") as folder:
        file = Path(folder) / "deployment.toml"
        file.write_text(_toml(deployment))
        yield file


def _toml(deployment: Topology) -> str:
    """The file of a deployment; strings, numbers and lists of JSON are also those of TOML."""
    lines = ["dev = true"]
    for name in ("broker", "router", "channel"):
        for entry in getattr(deployment, name):
            fields = json.loads(msgspec.json.encode(entry))
            lines += [f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    return "\n".join(lines) + "\n"


def ask(link: Link, request: control.Request) -> control.Answer:
    """One request and its answer."""
    link.serial += 1
    return chappe.ask(link, [msgspec.structs.replace(request, id=link.serial)])[0]


def rows(link: Link, what: str, limit: int = 1_000_000) -> list[dict[str, Any]]:
    """What a node or broker lists."""
    found: list[dict[str, Any]] = []
    while True:
        answer = ask(link, control.List(id=0, what=what, limit=limit, start=len(found)))
        assert isinstance(answer, control.Listing)
        found += answer.rows
        if not answer.rows or len(found) >= answer.total:
            return found
