"""`chappe bench adaptation`: a link of a nine-node mesh becomes slow; when messages go another way, at what price."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from dataclasses import dataclass, field

import uvloop

import chappe
from bench.adaptation_map import absorb
from bench.adaptation_message import TIMES, per_message
from bench.measuring_mesh import MeasuringMesh, Pair, grid, window
from bench.progress import steps
from bench.registry import Own
from bench.report import Options, Report
from chappe.client.client import Client

INTERVAL_S = 1.0
SLOWER_MS = 50.0
RATE_HZ = 400
BEST: tuple[Pair, ...] = (("n1", "n2"), ("n2", "n3"), ("n3", "n6"), ("n6", "n9"))
OTHER: tuple[Pair, ...] = (("n1", "n4"), ("n4", "n7"), ("n7", "n8"), ("n8", "n9"))
SLOWED: Pair = ("n2", "n3")
BEST_MS, OTHER_MS, FAR_MS = 4.0, 6.0, 15.0
SETTLE_S = 60.0
RUN = 40  # messages in a row that are quick: one that waited for a busy machine says nothing
STEADY_S = 4 * INTERVAL_S  # no way was changed for so long: none is held down
WINDOW = 8  # round trips of each link before anything is changed
WARM_S = 10.0  # until what was measured before both ways became equal is forgotten
NOISE_MS = 1.0  # of each way in the test of flapping
CHANGES_A_MINUTE = 1.0
LINKS = 100
PRICE_S = 4.0  # of a round in which CPU is compared


@dataclass(slots=True)
class Stream:
    """What was sent and what came: times by number."""

    sent: list[float] = field(default_factory=list)
    came: dict[int, float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    twice: int = 0

    def adapted(self, since: float) -> float:
        """When the first message after the degradation was sent that is quick again, as are all in a run after it."""
        slow_s, quick, first = (len(OTHER) * OTHER_MS + SLOWER_MS / 2) / 1e3, 0, since
        degraded = False
        for number, sent in enumerate(self.sent):
            if sent < since or number not in self.came:
                continue
            if self.came[number] - sent > slow_s:
                quick, degraded = 0, True
                continue
            first = first if quick else sent
            quick += 1
            if degraded and quick == RUN:
                return first
        return math.inf


def run(options: Options, own: Own) -> Report:
    """Adaptation, flapping, the price of measuring, and a cost update in a large map."""
    report = Report("adaptation")
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        steps(options.console, "adaptation", 3) as step,
    ):
        step("a slower link, and noise")
        runner.run(_mesh(report, options))
        step("what measuring costs")
        runner.run(_price(report, options))
        step("what it adds to a message")
        added = runner.run(per_message(options.quick))
    report.compare("measuring each second adds to the CPU of a message", added.percent, "%", "<", 1.0)
    report.show("which is by 95 % not less than", added.least, "%")
    report.show("and not more than", added.most, "%")
    report.show(f"CPU of the nodes a message with measuring {TIMES} times as often", added.often_us, "µs")
    report.show("CPU of the nodes a message without", added.without_us, "µs")
    own_ms, library_ms = absorb()
    report.compare("a cost update over a map of 1,000 links is absorbed in", own_ms, "ms", "<", 0.8)
    report.compare("which is so many times the bare library call", own_ms / library_ms, "times", "<=", 2.0)
    return report


async def _mesh(report: Report, options: Options) -> None:
    delays = dict.fromkeys(grid(), FAR_MS) | dict.fromkeys(BEST, BEST_MS) | dict.fromkeys(OTHER, OTHER_MS)
    async with (
        MeasuringMesh(delays, f"[mesh]\n[measure]\ninterval_s = {INTERVAL_S}\n") as mesh,
        chappe.connect(mesh.url("n1")) as publisher,
        chappe.connect(mesh.url("n9")) as subscriber,
    ):
        subscription = await subscriber.subscribe("adaptation")
        spans, streams = [], []
        for _ in range(1 if options.quick else min(3, options.rounds)):
            await _until_settled(publisher, [name for _, name in BEST])
            span, stream = await _degrade(mesh, publisher, subscription)
            spans.append(span)
            streams.append(stream)
        _judge(report, spans, streams)
        await _until_settled(publisher, [name for _, name in BEST])
        seconds = 20.0 if options.quick else 90.0
        changes = await _flap(mesh, publisher, seconds)
        report.compare(
            "route changes while two ways are within 5 % of each other under noise", changes * 60 / seconds,
            "a minute", "<", CHANGES_A_MINUTE,
        )  # fmt: skip


def _judge(report: Report, spans: list[float], streams: list[Stream]) -> None:
    limit_ms = 2 * INTERVAL_S * 1e3 + 100
    report.compare("messages flow on the new way after (worst)", max(spans) * 1e3, "ms", "<=", limit_ms)
    report.show("messages flow on the new way after (median)", statistics.median(spans) * 1e3, "ms")
    lost = sum(len(stream.sent) - len(stream.came) for stream in streams)
    disorder = sum(b < a for stream in streams for a, b in zip(stream.order, stream.order[1:], strict=False))
    report.compare("messages lost", lost, "messages", "==", 0)
    report.compare("messages delivered twice", sum(stream.twice for stream in streams), "messages", "==", 0)
    report.compare("messages that overtook an older one", disorder, "messages", "==", 0)
    report.show("messages sent", sum(len(stream.sent) for stream in streams), "messages")


async def _way(client: Client, to: str) -> list[str]:
    return next((list(row["way"]) for row in await client.list("routes") if row["to"] == to), [])


async def _until_settled(client: Client, way: list[str]) -> None:
    """The way is the one that delays say, and every link of it has been measured for a while."""
    async with asyncio.timeout(SETTLE_S):
        since = time.monotonic()
        while time.monotonic() < since + STEADY_S:
            if await _way(client, way[-1]) != way or await window(client) < WINDOW:
                since = time.monotonic()
            await asyncio.sleep(0.2)


async def _degrade(mesh: MeasuringMesh, publisher: Client, subscription: chappe.Subscription) -> tuple[float, Stream]:
    """Seconds from the degradation until every message took the new way, and all messages."""
    stream = Stream()
    reader = asyncio.create_task(_read(subscription, stream))
    relay, degraded_at = mesh.relays[SLOWED], 0.0
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + 2 + 4 * INTERVAL_S:
        if not degraded_at and now > begun + 1:
            relay.delay_s += SLOWER_MS / 1e3
            degraded_at = now
        stream.sent.append(now)
        publisher.publish("adaptation", b"%d" % (len(stream.sent) - 1))
        await asyncio.sleep(1 / RATE_HZ)
    await publisher.flush()
    await asyncio.sleep(0.5)  # what is under way arrives
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    relay.delay_s -= SLOWER_MS / 1e3
    return stream.adapted(degraded_at) - degraded_at, stream


async def _read(subscription: chappe.Subscription, stream: Stream) -> None:
    async for message in subscription:
        number = int(message.body)
        stream.twice += number in stream.came
        stream.came[number] = time.monotonic()
        stream.order.append(number)


async def _flap(mesh: MeasuringMesh, client: Client, seconds: float) -> int:
    """Route changes while both ways are as good, with noise on every link."""
    equal_s = (len(BEST) * BEST_MS + len(OTHER) * OTHER_MS) / 2 / len(BEST) / 1e3
    rng = random.Random(4)
    before, changes = await _way(client, "n9"), 0
    begun = time.monotonic() + WARM_S
    while time.monotonic() < begun + seconds:
        for pair in (*BEST, *OTHER):
            mesh.relays[pair].delay_s = equal_s + rng.uniform(0, NOISE_MS / 1e3 / len(BEST))
        await asyncio.sleep(0.1)
        now = await _way(client, "n9")
        changes += now != before and time.monotonic() > begun
        before = now
    return changes


async def _price(report: Report, options: Options) -> None:
    """CPU of a node with a hundred links that are measured each second, beside one that measures nothing at the same
    time, so that a busy machine is as busy for both."""
    sections = "[measure]\non = {}\nclients = true\nadapt = false\ninterval_s = 1.0\n"
    async with (
        MeasuringMesh({}, sections.format("true"), ("on",)) as measuring,
        MeasuringMesh({}, sections.format("false"), ("off",)) as idle,
    ):
        urls = [measuring.url("on")] * LINKS + [idle.url("off")] * LINKS
        clients = [await chappe.connect(url, heartbeat_s=10) for url in urls]
        try:
            await asyncio.sleep(2)  # the first probes of all
            shares = []
            for _ in range(2 if options.quick else 6):
                on_s, off_s = measuring.cpu_s()["on"], idle.cpu_s()["off"]
                await asyncio.sleep(PRICE_S)
                shares.append((measuring.cpu_s()["on"] - on_s - idle.cpu_s()["off"] + off_s) / PRICE_S)
        finally:
            await asyncio.gather(*(client.close() for client in clients))
    share = 100 * statistics.median(shares)
    report.compare(f"measuring {LINKS} links each second costs", share, "% of a core", "<", 0.5)
