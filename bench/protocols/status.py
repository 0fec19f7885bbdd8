"""Chappe's status records: one publisher, `topics` variables, 24 bytes a record."""

from __future__ import annotations

import ssl

from bench.protocols import chappe
from bench.protocols.common import Frames, Link
from chappe.wire import control

SCAN = "chappe"
RATE_NUM, RATE_DEN = 30, 1_000_000_000
WAIT_NS = 5_000_000_000  # a variable may be published on the far side of a mesh


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    return chappe.connect(address, tls)


def subscribe(link: Link, topics: int) -> None:
    """Every event of every variable, or one in each interval."""
    watch(link, [link.interval_ns] * topics)


def frames(link: Link, topics: int, size: int) -> Frames:
    """Registers the variables; the value of a record is the publisher's sequence, `created` its send time."""
    made = [bytes(8) + number.to_bytes(4, "big") + bytes(12) for number in register(link, topics)]
    return Frames(made, (-1, 16, 0, -1), run_head=True)


def register(link: Link, variables: int) -> list[int]:
    """Identifiers of that many variables with the period of the link."""
    first = link.serial + 1
    num, den = (1, link.period_ns) if link.period_ns else (RATE_NUM, RATE_DEN)
    wanted: list[control.Request] = [
        control.Register(
            id=first + i, publisher=link.label, variable=f"v{i:06d}", type="int", rate_num=num, rate_den=den
        )
        for i in range(variables)
    ]
    return [answer.variable_id for answer in chappe.ask(link, wanted) if isinstance(answer, control.Registered)]


def watch(link: Link, intervals_ns: list[int]) -> list[control.Watching]:
    """Watch the variables from the first on, each at its interval."""
    first = link.serial + 1
    wanted: list[control.Request] = [
        control.Watch(
            id=first + i, publisher=link.label, variable=f"v{i:06d}", interval_ns=interval, wait_ns=WAIT_NS,
            qos=(control.Qos(interval, redundancy=link.redundancy),) if link.redundancy else (), modes=link.modes,
        )
        for i, interval in enumerate(intervals_ns)
    ]  # fmt: skip
    return [answer for answer in chappe.ask(link, wanted) if isinstance(answer, control.Watching)]
