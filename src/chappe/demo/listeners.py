"""A listener at every router that asked for nothing: it gets the alert while that is flooded, and only then."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import chappe
from chappe.client.client import Client
from chappe.demo import phasors
from chappe.demo.checks import ValueCheck
from chappe.demo.schedule import Schedule
from chappe.demo.worker import HEARTBEAT_S, TIMEOUT_S, Orders, report_until, send_report, until_complete, work

EVERY = phasors.ALERT_EVERY


async def listen(urls: dict[str, str], orders: Orders) -> None:
    """Wait for the first round, check until the last one is known, then say what was wrong."""
    async with AsyncExitStack() as stack:
        clients = [await _open(stack, name, url) for name, url in urls.items()]
        streams = [client.flooded() for client in clients]
        send_report(ready=True)
        check = ValueCheck(Schedule((await orders.get())["first"], 0), len(clients), phasors.alert)
        at = [0] * len(clients)

        async def run(place: int) -> None:
            async for event in streams[place]:
                check.take((place,), (event.created,), (event.value,))
                at[place] += 1

        async def obey(order: dict[str, Any]) -> None:
            if "change" in order:
                check.change(order["change"], 0, EVERY)
            else:
                check.settle(order["settle"], EVERY if order["flooded"] else 0)

        def report() -> None:
            send_report(alerts={"received": dict(zip(urls, at, strict=True)), "problems": check.findings.total})

        running = [asyncio.create_task(run(place)) for place in range(len(clients))]
        last = (await report_until("last", orders, obey, report))["last"]
        await until_complete(lambda: check.missing(last))
        check.finish(last)
        report()
        send_report(
            heard={
                "received": check.received, "expected": check.expected(last), "extra": check.extra,
                "counts": check.findings.counts, "words": check.findings.words,
                "dropped": sum(client.losses[0] for client in clients) + sum(stream.dropped for stream in streams),
            }
        )  # fmt: skip
        await orders.get()
        for task in running:
            task.cancel()


async def _open(stack: AsyncExitStack, name: str, url: str) -> Client:
    return await stack.enter_async_context(
        chappe.connect(
            url, name=f"listener-{name}", flooded=True, heartbeat_s=HEARTBEAT_S, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S
        )
    )


if __name__ == "__main__":
    work(listen)
