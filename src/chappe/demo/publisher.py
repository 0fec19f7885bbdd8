"""The publisher of the demo: all phasors in every round, and an alert now and then."""

from __future__ import annotations

import asyncio
import time
from itertools import count

import chappe
from chappe.demo import phasors
from chappe.demo.worker import HEARTBEAT_S, REPORT_S, TIMEOUT_S, Orders, send_report, work


async def publish(urls: dict[str, str], orders: Orders) -> None:
    """Register, wait for the round to begin with, publish until asked to stop; then the edge has all of it."""
    (url,) = urls.values()
    async with chappe.connect(
        url, name="pmu", status_bytes=64 << 20, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S
    ) as client:
        group = await client.register_many(phasors.PUBLISHER, phasors.NAMES, rate=phasors.RATE)
        alert = await client.register(*phasors.ALERT, type="int", minimum=0.1, priority=0)
        send_report(ready=True)
        first = (await orders.get())["first"]
        refused = alerts = 0
        reported, late_ns = time.monotonic(), 0
        for number in count(first):
            await asyncio.sleep(max(0.0, (phasors.stamp(number) - time.time_ns()) / 1e9))
            late_ns = max(late_ns, time.time_ns() - phasors.stamp(number))
            created = phasors.stamp(number)
            refused += phasors.VARIABLES - group.publish_array(phasors.values(number), created)
            if number % phasors.ALERT_EVERY == 0:
                alerts += 1
                refused += not alert.publish(number, created)
            if not orders.empty():
                orders.get_nowait()
                break
            if time.monotonic() - reported >= REPORT_S:
                send_report(rounds=number - first + 1, alerts=alerts, late_ms=late_ns / 1e6, refused=refused)
                reported, late_ns = time.monotonic(), 0
        await client.flush(TIMEOUT_S)
        send_report(last=number, alerts=alerts, refused=refused, values=(number - first + 1) * phasors.VARIABLES)
        await orders.get()  # leaving would end the variables while others still count


if __name__ == "__main__":
    work(publish)
