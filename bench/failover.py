"""`chappe bench failover`: the active leaf broker is killed while it sets up subscriptions; its standby finishes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

from bench.mesh import Mesh, ask, rows, topology
from bench.postgres import postgres_server
from bench.progress import followed
from bench.protocols import Link, chappe
from bench.registry import Own
from bench.report import Options, Report
from chappe.errors import ChappeError, RefusedError
from chappe.wire import control

ROUTERS = ("e0", "i0", "i1", "e1")
CHANNELS = [("e0", "i0"), ("i0", "i1"), ("i1", "e1"), ("e0", "i1"), ("i0", "e1")]
SUBSCRIPTIONS, QUICK_SUBSCRIPTIONS = 1_000, 200
KILLED_AFTER = 0.3  # of the answers
PERIOD_NS = 100_000_000
ANSWERS_S = 60.0


def run(options: Options, own: Own) -> Report:
    """Each round kills another process at another moment of the set-up."""
    report = Report("failover")
    count = QUICK_SUBSCRIPTIONS if options.quick else SUBSCRIPTIONS
    spans, wrong = [], Counter[str]()
    with postgres_server() as server, Mesh(topology({"cloud": ROUTERS}, CHANNELS, standby=server.url)) as mesh:
        for turn in followed(options.console, "failover", range(options.repeats), "round {}".format):
            span, problems = _round(mesh, turn, count)
            spans.append(span)
            wrong.update(problems)
    report.show("longest pause of answers around the kill", max(spans), "s")
    for what in ("lost", "doubled", "half allocated"):
        report.compare(f"paths {what} among {count * len(spans):,} subscriptions", wrong[what], "paths", "==", 0)
    report.compare("requests not granted", wrong["not granted"], "requests", "==", 0)
    return report


def _round(mesh: Mesh, turn: int, count: int) -> tuple[float, Counter[str]]:
    publisher, subscriber = (chappe.connect(("127.0.0.1", mesh.port(name)), None) for name in ("e0", "e1"))
    name = f"source-{turn}"
    chappe.ask(publisher, [
        control.Register(id=at + 1, publisher=name, variable=f"v{at}", rate_num=1, rate_den=PERIOD_NS)
        for at in range(count)
    ])  # fmt: skip
    leader = _leader(mesh)
    qos = control.Qos(PERIOD_NS, redundancy=2)
    for at in range(count):
        request = control.Watch(id=at + 1, publisher=name, variable=f"v{at}", qos=(qos,))
        subscriber.sock.sendall(chappe.frame(chappe.CONTROL, control.encode(request)))
    longest, granted = _answers(mesh, leader, subscriber, count)
    mesh.restart(leader)
    problems = _compare(mesh, name, count)
    problems["not granted"] = count - granted
    for link in (subscriber, publisher):
        link.sock.close()
    _settle(mesh, name)
    return longest, problems


def _answers(mesh: Mesh, leader: str, subscriber: Link, count: int) -> tuple[float, int]:
    """The longest time between two answers, and how many were granted; the leader is killed on the way."""
    subscriber.sock.settimeout(ANSWERS_S)
    longest, last, granted = 0.0, time.monotonic(), 0
    for number in range(count):
        if number == int(count * KILLED_AFTER):
            os.kill(mesh.pid(leader), signal.SIGKILL)
        answer = chappe.next_message(subscriber)
        if isinstance(answer, control.Refused):
            raise RefusedError(f"the edge closed the connection: {answer.reason}")
        granted += isinstance(answer, control.Watching)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest, granted


def _leader(mesh: Mesh) -> str:
    """The name of the process that leads."""
    broker = mesh.topology.brokers["cloud"]
    for place, address in enumerate(broker.listen):
        try:
            link = chappe.connect(("127.0.0.1", int(address.rpartition(":")[2])), None)
        except (ChappeError, OSError):
            continue
        try:
            rows(link, "modes")
            return broker.process(place)
        except ChappeError:
            continue
        finally:
            link.sock.close()
    raise ChappeError("no process of the leaf broker leads")


def _compare(mesh: Mesh, publisher: str, count: int) -> Counter[str]:
    """What routers have against what the broker says, both against what was asked for."""
    with mesh.operator("cloud") as link:
        granted = [row for row in rows(link, "paths") if row["publisher"] == publisher]
    by_key = Counter(row["key"] for row in granted)
    problems = Counter({
        "lost": sum(2 - number for number in by_key.values() if number < 2) + 2 * max(0, count - len(by_key)),
        "doubled": sum(number - 2 for number in by_key.values() if number > 2) + max(0, len(by_key) - count),
    })  # fmt: skip
    for name in mesh.topology.routers:
        should = Counter((row["publisher"], row["variable"]) for row in granted if name in row["routers"])
        link = chappe.connect(("127.0.0.1", mesh.port(name)), None)
        has = Counter(
            (row["publisher"], row["variable"]) for row in rows(link, "paths") if row["publisher"] == publisher
        )
        link.sock.close()
        problems["half allocated"] += sum(((should - has) + (has - should)).values())
    return problems


def _settle(mesh: Mesh, publisher: str) -> None:
    """The clients of a round are gone; take their state away, so that the next one starts from nothing."""
    deadline = time.monotonic() + ANSWERS_S
    while time.monotonic() < deadline:
        try:
            with mesh.operator("cloud") as link:
                left: list[dict[str, Any]] = [row for row in rows(link, "routers") if not row["up"]]
                ask(link, control.List(id=0, what="modes"))
            if not left:
                return
        except ChappeError:
            pass
        time.sleep(0.1)
    raise ChappeError(f"the mesh did not come to rest after {publisher}")
