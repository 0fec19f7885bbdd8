"""The publisher of the demo: all phasors in every round, alarms and jobs beside them."""

from __future__ import annotations

import asyncio
import struct
import time
from itertools import count

import chappe
from chappe.client.client import Client
from chappe.demo import phasors
from chappe.demo.worker import HEARTBEAT_S, REPORT_S, TIMEOUT_S, Orders, tell, work

EVENTS_A_ROUND = 10  # alarms, and as many jobs
NUMBERED = struct.Struct(">Qq")  # number, time of publishing in ns
KINDS = ("voltage", "frequency", "angle")


async def publish(url: str, orders: Orders) -> None:
    """Register, wait for the round to begin with, publish until told to stop; then the node has all of it."""
    async with chappe.connect(
        url, name="pmu", status_bytes=64 << 20, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S
    ) as client:
        group = await client.register_many(phasors.PUBLISHER, phasors.NAMES, rate=phasors.RATE)
        tell(ready=True)
        first = (await orders.get())["first"]
        refused = events = 0
        reported, late_ns = time.monotonic(), 0
        for number in count(first):
            await asyncio.sleep(max(0.0, (phasors.stamp(number) - time.time_ns()) / 1e9))
            late_ns = max(late_ns, time.time_ns() - phasors.stamp(number))
            created = phasors.stamp(number)
            refused += phasors.VARIABLES - group.publish_array(phasors.values(number), created)
            events = await _events(client, events)
            if not orders.empty():
                orders.get_nowait()
                break
            if time.monotonic() - reported >= REPORT_S:
                tell(rounds=number - first + 1, events=events, late_ms=late_ns / 1e6, refused=refused)
                reported, late_ns = time.monotonic(), 0
        await client.flush(TIMEOUT_S)
        tell(last=number, events=events, refused=refused, values=(number - first + 1) * phasors.VARIABLES)
        await orders.get()  # leaving would end the variables while others still count


async def _events(client: Client, number: int) -> int:
    for _ in range(EVENTS_A_ROUND):
        number += 1
        body = NUMBERED.pack(number, time.time_ns())
        await client.publish_wait(f"alarms/bus-{number % 50}/{KINDS[number % 3]}", body, 1)
        await client.publish_wait(f"jobs/{number % 8}", body)
    return number


if __name__ == "__main__":
    work(publish)
