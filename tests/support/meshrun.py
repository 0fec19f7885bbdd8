"""A real mesh that runs for a while with an archive beside it; tests of the pipeline read what that one wrote."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import time
from pathlib import Path

import uvloop

import chappe
from chappe.bench.delays import DelayRelay
from tests.support.meshes import Plan, mesh, relayed
from tests.support.nodes import NodeProcess

RING = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
USUAL_MS = 1.0
SLOW_MS = 25.0  # of the link between a and b in the middle of the run
RATE_HZ = 50
FLOATS = ("pmu1/frequency", "pmu1/voltage", "pmu2/frequency", "pmu2/voltage")
ARCHIVE = """
[archive]
name = "plant"
url = "{url}"
folder = "history"
log = "log"
topics = ["plant/#"]
age_s = 2.0
discover_s = 0.2
report_s = 0.5
[[archive.variables]]
name = "pmu*/*"
"""


def run(folder: Path, seconds: float) -> Path:
    """Run four nodes in a ring, publishers and an archive; the folder of the archive's segments.

    Links are measured every 0.2 s; the one between a and b is slow in the middle third. Four variables of numbers, a
    whole one and a truth value are published at 50 Hz, and events to plant/alarm and plant/reading.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(folder, seconds))


async def _run(folder: Path, seconds: float) -> Path:
    plan = Plan(RING, more='[report]\nrealm = "plant"\nsilence_s = 1.0\n')
    async with relayed(plan, dict.fromkeys(RING, USUAL_MS)) as relays, mesh(plan, relays) as nodes:
        file = folder / "archive.toml"
        file.write_text(ARCHIVE.format(url=nodes["a"].url))
        archive = await NodeProcess.start(file, module="chappe.archive")
        try:
            async with chappe.connect(nodes["a"].url, name="pmu") as meter, chappe.connect(nodes["c"].url) as plant:
                await asyncio.gather(
                    _degrade(relays[RING[0]], seconds), _measure(meter, seconds), _tell(plant, seconds)
                )
        finally:
            code = await archive.end(signal.SIGTERM)
    if code:
        raise RuntimeError(f"the archive ended with {code}:\n" + "\n".join(archive.log))
    return folder / "history"


async def _degrade(relay: DelayRelay, seconds: float) -> None:
    await asyncio.sleep(seconds / 3)
    relay.delay_s = SLOW_MS / 1e3
    await asyncio.sleep(seconds / 3)
    relay.delay_s = USUAL_MS / 1e3
    await asyncio.sleep(seconds / 3)


async def _measure(client: chappe.Client, seconds: float) -> None:
    """Values that swing, a counter and a switch."""
    variables = [await client.register(*name.split("/"), rate=RATE_HZ) for name in FLOATS]
    steps = await client.register("pmu1", "steps", rate=RATE_HZ, type="int")
    closed = await client.register("pmu1", "closed", rate=RATE_HZ, type="bool")
    loop = asyncio.get_running_loop()
    begun, step = loop.time(), 0
    while (at := loop.time() - begun) < seconds:
        for number, variable in enumerate(variables):
            variable.publish(50.0 + math.sin(at + number))
        steps.publish(step)
        closed.publish(step % 100 < 50)
        step += 1
        await asyncio.sleep(max(0.0, begun + step / RATE_HZ - loop.time()))


async def _tell(client: chappe.Client, seconds: float) -> None:
    """Readings, and now and then an alarm."""
    loop = asyncio.get_running_loop()
    begun, number = loop.time(), 0
    while loop.time() - begun < seconds:
        body = json.dumps({"number": number, "at": time.time_ns()}).encode()
        client.publish("plant/alarm" if number % 10 == 0 else "plant/reading", body)
        number += 1
        await asyncio.sleep(0.05)
