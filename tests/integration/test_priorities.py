"""Classes of priority at a real connection: what is urgent passes what waits, in both planes of addresses (GS-070)."""

from __future__ import annotations

import pytest

from chappe.wire.base import Qos
from chappe.wire.payloads import Status
from chappe.wire.status import Record
from chappe.wire.status import record as made
from tests.support.nodes import running
from tests.support.wireclient import WireClient

NODE = """
[node]
name = "hub"
[[listen]]
url = "tcp://127.0.0.1:0"
send_buffer = 8192
[limits]
queue_bytes = 67108864
"""
BATCH, BATCHES = 2_000, 200
PRIORITIES = {"background": 6, "normal": 4, "high": 2, "alert": 0}  # one of each class


@pytest.mark.spec("GS-070")
async def test_of_four_classes_the_more_urgent_leaves_first_and_an_alert_before_everything() -> None:
    async with running(NODE) as (node,):
        publisher = await WireClient.open(node.url, name="p")
        reader = await WireClient.open(node.url, name="r")
        try:
            numbers = {}
            for name, priority in PRIORITIES.items():
                numbers[name] = await publisher.register(f"p/{name}", rate_hz=1_000_000, priority=priority)
                await reader.watch(f"p/{name}", qos=(Qos(priority=priority),))
            reader.pause()
            for batch in range(BATCHES):
                stamps = range(batch * BATCH + 1, (batch + 1) * BATCH + 1)
                publisher.send(Status(tuple(record(numbers["background"], stamp) for stamp in stamps)))
            await publisher.flush()
            for name in ("normal", "high", "alert"):  # the most urgent comes last
                publisher.send(Status(tuple(record(numbers[name], stamp) for stamp in range(1, 101))))
            await publisher.flush()
            reader.resume()
            everything = BATCH * BATCHES + 300
            await reader.until(lambda: len(reader.records) == everything)
        finally:
            await publisher.close()
            await reader.close()
        order = {name: [at for at, each in enumerate(reader.records) if each.variable == number]
                 for name, number in numbers.items()}  # fmt: skip
        assert max(order["alert"]) < min(order["high"])
        assert max(order["high"]) < min(order["normal"])
        behind = sum(at > max(order["normal"]) for at in order["background"])
        assert behind > 1000, "most of what waited has waited for the others"
        for name, places in order.items():
            created = [reader.records[at].created for at in places]
            assert created == sorted(created), f"{name} keeps its order"


def record(variable: int, stamp: int) -> Record:
    return made(stamp * 1_000, variable, float(stamp))
