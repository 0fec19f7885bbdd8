"""The topic subscribers of the demo: one for all alarms, and two workers that share the jobs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import chappe
from chappe.client._inbox import Subscription
from chappe.client.client import Client
from chappe.demo.checks import EventCheck
from chappe.demo.latencies import Latencies
from chappe.demo.publisher import NUMBERED
from chappe.demo.worker import HEARTBEAT_S, REPORT_S, TIMEOUT_S, Orders, tell, until_complete, work

# name of the row -> pattern, queue group, number of subscribers
PATTERNS = {"alarms/#": ("", 1), "jobs/#": ("workers", 2)}


class Audience:
    """The subscribers of one pattern; of a queue group they get each event once between them."""

    def __init__(self, pattern: str, clients: list[Client], subscriptions: list[Subscription]) -> None:
        self.name = pattern
        self.clients = clients
        self.subscriptions = subscriptions
        self.check = EventCheck(len(subscriptions))
        self.whole = Latencies()
        self.recent = Latencies()
        self.shares = [0] * len(subscriptions)

    async def run(self, receiver: int) -> None:
        """Check whatever comes to one of them."""
        async for messages in self.subscriptions[receiver].batches():
            now_ns = time.time_ns()
            for message in messages:
                number, published_ns = NUMBERED.unpack(message.body)
                self.check.take(receiver, number)
                self.whole.add((now_ns - published_ns,))
                self.recent.add((now_ns - published_ns,))
            self.shares[receiver] += len(messages)

    def report(self, latencies: Latencies) -> dict[str, Any]:
        lost = sum(client.losses[1] for client in self.clients)
        return {
            "received": self.check.received,
            "p50_ms": latencies.percentile_ms(0.5),
            "p99_ms": latencies.percentile_ms(0.99),
            "dropped": lost + sum(subscription.dropped for subscription in self.subscriptions),
            "problems": self.check.findings.total,
        }


async def listen(url: str, orders: Orders) -> None:
    """Subscribe, check until told the number of the last event, then say what was wrong."""
    async with AsyncExitStack() as stack:
        audiences = [await _open(stack, url, pattern) for pattern in PATTERNS]
        running = [
            asyncio.create_task(audience.run(receiver))
            for audience in audiences
            for receiver in range(len(audience.subscriptions))
        ]
        tell(ready=True)
        await orders.get()
        while orders.empty():
            await asyncio.sleep(REPORT_S)
            tell(subscribers={audience.name: audience.report(audience.recent) for audience in audiences})
            for audience in audiences:
                audience.recent = Latencies()
        last = orders.get_nowait()["events"]
        await until_complete(lambda: sum(audience.check.missing(last) for audience in audiences))
        results = {}
        for audience in audiences:
            audience.check.finish(last)
            found = audience.check.findings
            if not all(audience.shares):
                found.add("group", f"a member got nothing: {audience.shares}")
            results[audience.name] = {
                **audience.report(audience.whole), "expected": last, "counts": found.counts, "words": found.words,
                "reconnections": sum(client.reconnections for client in audience.clients),
            }  # fmt: skip
        tell(results=results)
        await orders.get()
        for task in running:
            task.cancel()


async def _open(stack: AsyncExitStack, url: str, pattern: str) -> Audience:
    group, members = PATTERNS[pattern]
    clients = [
        await stack.enter_async_context(
            chappe.connect(
                url, name=f"{group or 'alarms'}-{member}", heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S,
                wait_s=TIMEOUT_S,
            )
        )
        for member in range(members)
    ]  # fmt: skip
    return Audience(pattern, clients, [await client.subscribe(pattern, group=group) for client in clients])


if __name__ == "__main__":
    work(listen)
