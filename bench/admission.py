"""`chappe bench admission`: 10,000 subscriptions over two disjoint paths on a power grid of 118 buses."""

from __future__ import annotations

import random
import time
from collections import Counter
from importlib.resources import files

import msgspec
import rustworkx

from bench import route_checker
from bench.mesh import Mesh, rows, url
from bench.progress import steps
from bench.protocols import Link, chappe
from bench.registry import Own
from bench.report import Options, Report
from chappe.errors import RefusedError
from chappe.links.ports import free_ports
from chappe.status.topology import Topology
from chappe.wire import control

SUBSCRIPTIONS, QUICK_SUBSCRIPTIONS = 10_000, 200
VARIABLES_EACH = 20
PERIOD_NS = 100_000_000
INTERVALS = (1, 2, 3, 5)  # in periods
LATENCY_NS = 200_000_000
RATE = 300.0
ANSWERS_S = 120.0  # all are asked for at once; the last answer takes as long as all of them


def grid() -> Topology:
    """The 118-bus grid in 4 clouds below one root, on free ports."""
    text = (files("bench") / "grid118.toml").read_text()
    made = msgspec.toml.decode(text, type=Topology)
    ports = iter(free_ports(len(made.router) + sum(len(broker.listen) for broker in made.broker)))
    return msgspec.structs.replace(
        made,
        broker=tuple(
            msgspec.structs.replace(broker, listen=tuple(url(next(ports)) for _ in broker.listen), store="")
            for broker in made.broker
        ),
        router=tuple(msgspec.structs.replace(router, listen=url(next(ports))) for router in made.router),
        dev=True,
    )


def run(options: Options, own: Own) -> Report:
    """Set up, verify, remove."""
    report = Report("admission")
    count = QUICK_SUBSCRIPTIONS if options.quick else SUBSCRIPTIONS
    with Mesh(grid()) as mesh, steps(options.console, "admission", 3) as step:
        topology = mesh.topology
        chance = random.Random(118)
        links = {name: chappe.connect(("127.0.0.1", mesh.port(name)), None) for name in topology.routers}
        for link in links.values():
            link.sock.settimeout(ANSWERS_S)
        step(f"{count:,} subscriptions")
        _publish(links)
        wanted = _wanted(chance, list(links), count)
        span, granted, refused = _subscribe(links, wanted)
        report.show("granted", len(granted), "subscriptions")
        report.show("refused", len(refused), "subscriptions")
        report.compare(
            f"set-up of {count:,} subscriptions over two disjoint paths", count / span, "a second", ">=", RATE
        )
        step("verifying paths")
        _verify(report, mesh, granted, refused)
        step("removal")
        span = _unsubscribe(links, granted)
        report.show("removal", len(granted) / span, "a second")
        left = _left(mesh)
        report.compare("paths left in brokers and routers after removal", sum(left.values()), "paths", "==", 0)
        for link in links.values():
            link.sock.close()
    return report


def _publish(links: dict[str, Link]) -> None:
    for name, link in links.items():
        chappe.ask(link, [
            control.Register(id=number + 1, publisher=name, variable=f"v{number}", rate_num=1, rate_den=PERIOD_NS)
            for number in range(VARIABLES_EACH)
        ])  # fmt: skip


def _wanted(chance: random.Random, names: list[str], count: int) -> list[tuple[str, str, str, int]]:
    """(edge, publisher, variable, interval), none twice."""
    wanted: dict[tuple[str, str, str], int] = {}
    while len(wanted) < count:
        edge, publisher = chance.sample(names, 2)
        key = (edge, publisher, f"v{chance.randrange(VARIABLES_EACH)}")
        wanted.setdefault(key, chance.choice(INTERVALS) * PERIOD_NS)
    return [(*key, interval) for key, interval in wanted.items()]


Subscription = tuple[str, str, str]


def _subscribe(
    links: dict[str, Link], wanted: list[tuple[str, str, str, int]]
) -> tuple[float, dict[Subscription, control.Watching], dict[Subscription, control.Failed]]:
    """All asked for at once, each edge by its own connection; seconds, what was granted and what refused."""
    asked: dict[str, dict[int, Subscription]] = {}
    start = time.monotonic()
    for edge, publisher, variable, interval in wanted:
        link = links[edge]
        link.serial += 1
        qos = control.Qos(interval, LATENCY_NS, redundancy=2)
        request = control.Watch(id=link.serial, publisher=publisher, variable=variable, qos=(qos,))
        link.sock.sendall(chappe.frame(chappe.CONTROL, control.encode(request)))
        asked.setdefault(edge, {})[link.serial] = (edge, publisher, variable)
    granted: dict[Subscription, control.Watching] = {}
    refused: dict[Subscription, control.Failed] = {}
    for edge, waiting in asked.items():
        while waiting:
            answer = chappe.next_message(links[edge])
            if isinstance(answer, control.Watching):
                granted[waiting.pop(answer.id)] = answer
            elif isinstance(answer, control.Failed):
                refused[waiting.pop(answer.id)] = answer
            elif isinstance(answer, control.Refused):
                raise RefusedError(f"{edge} closed the connection: {answer.reason}")
    return time.monotonic() - start, granted, refused


def _verify(
    report: Report,
    mesh: Mesh,
    granted: dict[Subscription, control.Watching],
    refused: dict[Subscription, control.Failed],
) -> None:
    topology = mesh.topology
    paths = [row for cloud in _leaves(topology) for row in _rows(mesh, cloud, "paths")]
    routes = route_checker.joined(paths)
    found = route_checker.problems(topology, routes, LATENCY_NS / 1e6, redundancy=2)
    for line in found[:5]:
        report.note(line)
    report.compare("granted paths not disjoint, too slow or above a capacity", len(found), "problems", "==", 0)
    report.compare("granted subscriptions without paths", len(granted) - len({route.key for route in routes}),
                   "subscriptions", "==", 0)  # fmt: skip
    possible = _possible(topology, refused)
    report.compare("refused although the grid has two disjoint paths", possible, "subscriptions", "==", 0)
    vague = sum("disjoint" not in failed.reason for failed in refused.values())
    report.compare("refusals that do not name the missing disjoint path", vague, "refusals", "==", 0)
    for reason, number in Counter(failed.reason.partition(":")[0] for failed in refused.values()).most_common(3):
        report.note(f"refused {number}: {reason}")


def _possible(topology: Topology, refused: dict[Subscription, control.Failed]) -> int:
    """Refusals between routers that no single router or channel separates, by another library's components."""
    graph = rustworkx.PyGraph()
    number = {name: graph.add_node(name) for name in topology.routers}
    for channel in topology.channel:
        a, b = channel.between
        graph.add_edge(number[a], number[b], None)
    blocks = [{*component} for component in _blocks(graph)]
    return sum(
        any(number[edge] in block and number[publisher] in block for block in blocks)
        for edge, publisher, _ in refused
    )  # fmt: skip


def _blocks(graph: rustworkx.PyGraph) -> list[set[int]]:
    """Sets of routers with two disjoint paths between any two of them."""
    members: dict[int, set[int]] = {}
    for (a, b), block in rustworkx.biconnected_components(graph).items():
        members.setdefault(block, set()).update((a, b))
    return [block for block in members.values() if len(block) > 2]


def _unsubscribe(links: dict[str, Link], granted: dict[Subscription, control.Watching]) -> float:
    start = time.monotonic()
    asked: Counter[str] = Counter()
    for (edge, _, _), answer in granted.items():
        link = links[edge]
        link.serial += 1
        request = control.Unwatch(id=link.serial, variable_id=answer.variable_id)
        link.sock.sendall(chappe.frame(chappe.CONTROL, control.encode(request)))
        asked[edge] += 1
    for edge, left in asked.items():
        while left:
            left -= isinstance(chappe.next_message(links[edge]), control.Done)
    return time.monotonic() - start


def _left(mesh: Mesh) -> dict[str, int]:
    """Paths that brokers and routers still have, waiting for what is under way."""
    deadline = time.monotonic() + 20
    while True:
        left = {cloud: len(_rows(mesh, cloud, "paths")) for cloud in _leaves(mesh.topology)}
        for name in mesh.topology.routers:
            link = chappe.connect(("127.0.0.1", mesh.port(name)), None)
            left[name] = len(rows(link, "paths"))
            link.sock.close()
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def _leaves(topology: Topology) -> list[str]:
    parents = {broker.parent for broker in topology.broker}
    return [broker.name for broker in topology.broker if broker.name not in parents]


def _rows(mesh: Mesh, broker: str, what: str) -> list[dict[str, object]]:
    with mesh.operator(broker) as link:
        return rows(link, what)
