"""Cases shares, kill, nat, beside: small networks in which one thing changes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

import chappe
from bench.cells.hosts import Line, Pair
from bench.cells.sites import CellSites, wait
from bench.report import Options, Report
from chappe.errors import ChappeError, UnreachableError

MB = 1_000_000.0
SOURCE, SINK = "n1", "n5"
BRANCHES = {"n2": 1 * MB, "n3": 2 * MB, "n4": 4 * MB}
DELAY_MS = 10.0
POINTS, POINTS_AFTER = 0.02, 0.05
WITHIN_S, OVER_S = 30.0, 10.0
EVENT_TOPIC = "beside/event"
SLOW = 2 * MB
BUCKET = 64_000
HEADROOM = 256 * 1024


def diamond(rates: Mapping[str, float]) -> dict[Pair, Line]:
    """From the source over each branch to the sink, and back."""
    lines: dict[Pair, Line] = {}
    for branch, rate in rates.items():
        for pair in ((SOURCE, branch), (branch, SINK)):
            lines[pair] = lines[pair[::-1]] = Line(rate, DELAY_MS)
    return lines


def shares(options: Options, report: Report) -> None:
    """1 : 2 : 4, then the largest becomes a quarter of it."""
    steady_s = 10.0 if options.quick else 30.0
    with CellSites(diamond(BRANCHES), known=2) as sites:
        sites.start(SOURCE, *BRANCHES, SINK)
        with sites.program(SINK, "receive", sites.url(SINK), SINK) as receiver:
            receiver.ready()
            seconds = str(20 + steady_s + WITHIN_S + OVER_S)
            arguments = ("--messages", "1000000", "--seconds", seconds)
            with sites.program(SOURCE, "send", sites.url(SOURCE), SOURCE, SINK, *arguments):
                watching = asyncio.run(_watch_shares(sites, steady_s))
    before, after = watching
    report.compare("shares: bytes by path from the probabilities", _apart(*before), "of the bytes", "<=", POINTS)
    report.compare("shares: after a step by 4, over 10 s", _apart(*after), "of the bytes", "<=", POINTS_AFTER)
    for name, share in sorted(before[0].items()):
        report.show(f"shares: by {name}, at first", share, "of the bytes")
    for name, share in sorted(after[0].items()):
        report.show(f"shares: by {name}, after the step", share, "of the bytes")


Shares = tuple[dict[str, float], dict[str, float]]
"""What each branch carried, and with which probability it was drawn."""


async def _watch_shares(sites: CellSites, steady_s: float) -> tuple[Shares, Shares]:
    with sites.hosts.inside(SOURCE):
        client = await chappe.connect(sites.url(SOURCE), name="look")
    async with client:
        await asyncio.sleep(20.0)  # slow start is over, and links have been measured
        before = await _over(client, steady_s)
        branch = max(BRANCHES, key=lambda name: BRANCHES[name])
        for pair in sites.hosts.lines:
            if branch in pair:
                sites.hosts.limit(pair, BRANCHES[branch] / 4)
        await asyncio.sleep(WITHIN_S)
        after = await _over(client, OVER_S)
    return before, after


async def _over(client: Any, seconds: float) -> Shares:
    """Bytes by branch in that time, and the mean of the probabilities that were drawn from."""
    first = await _paths(client)
    drawn: list[dict[str, float]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        drawn.append({name: row["share"] for name, row in (await _paths(client)).items()})
    last = await _paths(client)
    sent = {name: row["sent_bytes"] - first.get(name, {}).get("sent_bytes", 0) for name, row in last.items()}
    total = max(sum(sent.values()), 1)
    mean = {name: statistics.fmean(each.get(name, 0.0) for each in drawn) for name in last}
    return {name: bytes_sent / total for name, bytes_sent in sent.items()}, mean


async def _paths(client: Any) -> dict[str, dict[str, Any]]:
    rows = await client.list("parcel_routes", of=SINK)
    return {row["hops"][0]: row for row in rows if row["hops"]}


def _apart(carried: Mapping[str, float], drawn: Mapping[str, float]) -> float:
    return max((abs(share - drawn.get(name, 0.0)) for name, share in carried.items()), default=1.0)


def kill(options: Options, report: Report) -> None:
    """A branch, then another one, killed while bytes pass; digest, order and repeats at the receiver."""
    size = 1 << 26 if options.quick else 1 << 30
    messages = size // 25_000
    rates = dict.fromkeys(("n2", "n3", "n4"), 20 * MB)
    with CellSites(diamond(rates), known=2) as sites:
        sites.start(SOURCE, *rates, SINK)
        with sites.program(SINK, "receive", sites.url(SINK), SINK) as receiver:
            receiver.ready()
            arguments = ("--messages", str(messages))
            with sites.program(SOURCE, "send", sites.url(SOURCE), SOURCE, SINK, *arguments) as sender:
                for part, victim in ((0.3, "n2"), (0.6, "n3")):
                    wait(lambda part=part: _confirmed(sender.said()) > part * size, 300, "a part of the bytes")
                    sites.kill(victim)
                done = sender.done(within_s=600)
            receiver.stop()
            counted = receiver.done(within_s=1)
    report.compare("kill: messages confirmed", done["messages"], "messages", "==", messages)
    report.compare("kill: messages that came", counted["messages"], "messages", "==", messages)
    report.compare("kill: digest is that of what was sent", counted["digest"] == done["digest"], "", "==", 1)
    report.compare("kill: doubled, or out of order", counted["doubled"] + counted["disordered"], "messages", "==", 0)
    report.show("kill: throughput", done["bytes"] / done["seconds"] / MB, "MB/s")


def _confirmed(lines: Iterable[Mapping[str, Any]]) -> int:
    return max((line.get("bytes", 0) for line in lines), default=0)


def nat(options: Options, report: Report) -> None:
    """Two cells behind firewalls whose names are neighbours."""
    for title, others in (("a cell in common", ("n1", "n9")), ("none in common", ())):
        ends = ("n4", "n5")
        names = (*ends, *others)
        lines = {(one, other): Line(10 * MB, 1.0) for one in names for other in names if one != other}
        with CellSites(lines, closed=ends, known=2) as sites:
            sites.start(*names)
            took_s, arrived = asyncio.run(_one_message(sites, *ends))
        if others:
            report.compare(f"nat: {title}: messages that arrived", arrived, "of 1", "==", 1)
        else:
            report.compare(f"nat: {title}: an error after", took_s if not arrived else float("nan"), "s", "<=", 5.0)


async def _one_message(sites: CellSites, source: str, sink: str) -> tuple[float, int]:
    with sites.hosts.inside(sink):
        receiving = await chappe.connect(sites.url(sink), name="sink")
    with sites.hosts.inside(source):
        sending = await chappe.connect(sites.url(source), name="source")
    async with receiving, sending, receiving.cell(sink) as there, sending.cell(source) as here:
        await asyncio.sleep(8.0)  # names have spread
        began = time.monotonic()
        try:
            await here.send(sink, b"hello")
        except UnreachableError:
            return time.monotonic() - began, 0
        message = await anext(aiter(there))
        return time.monotonic() - began, int(message.body == b"hello")


def beside(options: Options, report: Report) -> None:
    """Ordinary events from one end to the other, without and with a flow on the same lines."""
    seconds = 5.0 if options.quick else 20.0
    line = Line(SLOW, DELAY_MS, BUCKET)
    lines = {(SOURCE, SINK): line, (SINK, SOURCE): line}
    with CellSites(lines, section="update_s = 1.0\n[mesh]\n") as sites:
        sites.start(SOURCE, SINK)
        idle = asyncio.run(_events(sites, seconds))
        with sites.program(SINK, "receive", sites.url(SINK), SINK) as receiver:
            receiver.ready()
            arguments = ("--messages", "1000000", "--seconds", str(seconds + 15))
            with sites.program(SOURCE, "send", sites.url(SOURCE), SOURCE, SINK, *arguments) as sender:
                wait(lambda: _confirmed(sender.said()) > SLOW, 30, "the flow")
                before, began = _confirmed(sender.said()), time.monotonic()
                loaded = asyncio.run(_events(sites, seconds))
                rate = (_confirmed(sender.said()) - before) / (time.monotonic() - began)
    report.show("beside: p99 of events on idle lines", idle * 1e3, "ms")
    report.show("beside: p99 beside the flow", loaded * 1e3, "ms")
    report.show("beside: what the flow carried meanwhile, of the line", rate / SLOW, "times")
    report.compare("beside: p99 grows by, of 256 KiB on the line", (loaded - idle) * SLOW / HEADROOM, "times", "<=", 1)


async def _events(sites: CellSites, seconds: float) -> float:
    """The 99th percentile of their latency."""
    with sites.hosts.inside(SINK):
        sink = await chappe.connect(sites.url(SINK), name="events-sink")
    with sites.hosts.inside(SOURCE):
        source = await chappe.connect(sites.url(SOURCE), name="events-source")
    latencies: list[float] = []
    async with sink, source:
        subscription = await sink.subscribe(EVENT_TOPIC)
        for _ in range(100):  # until the mesh knows of it
            source.publish(EVENT_TOPIC, b"0")
            try:
                async with asyncio.timeout(0.2):
                    await anext(aiter(subscription))
                break
            except TimeoutError:
                continue
        else:
            raise ChappeError("no event came through the mesh")

        async def take() -> None:
            async for message in subscription:
                if message.body != b"0":
                    latencies.append(time.monotonic() - float(message.body))  # noqa: PERF401  it is read meanwhile

        taking = asyncio.create_task(take())
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            source.publish(EVENT_TOPIC, repr(time.monotonic()).encode())
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        taking.cancel()
    return statistics.quantiles(latencies, n=100)[98]
