"""A real mesh and a managed cloud that run for a while beside archives; tests of the pipeline read what they wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import uvloop

import chappe
from chappe.core.sections import Counters
from chappe.links.delays import DelayRelay
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.meshes import Plan, mesh, relayed
from tests.support.nodes import NodeProcess

RING = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
USUAL_MS = 1.0
SLOW_MS = 25.0  # of the link between a and b in the middle of the run
RATE_HZ = 50
REST_S = 0.5
FLOATS = ("pmu1/frequency", "pmu1/voltage", "pmu2/frequency", "pmu2/voltage")
ARCHIVE = """
[archive]
name = "{name}"
url = "{url}"
brokers = {brokers}
folder = "history"
log = "{log}"
topics = ["plant/#"]
age_s = 2.0
discover_s = 0.2
report_s = 0.5
[[archive.variables]]
name = "{variables}"
"""


def run(folder: Path, seconds: float) -> Path:
    """Run nodes, routers, a broker, publishers, subscribers and two archives; the folder of their segments.

    The mesh, of archive `plant`: four nodes in a ring, links measured every 0.2 s, the one between a and b slow in the
    middle third. Four variables of numbers, a whole one and a truth value are published at 50 Hz, and events to
    plant/alarm, which are durable, and plant/reading.

    The cloud, of archive `cloud`: a broker and four routers, two ways from w to z. turbine/speed is published at w at
    50 Hz, but for a pause in the middle, and watched at z by `desk` over both ways with a bound of 50 ms, which it
    reports about; a wish that no network grants is refused. All nodes and the broker tell their counters.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(folder, seconds))


async def _run(folder: Path, seconds: float) -> Path:
    (folder / "cloud").mkdir()
    await asyncio.gather(_run_mesh(folder, seconds), _run_cloud(folder, seconds))
    return folder / "history"


async def _run_mesh(folder: Path, seconds: float) -> None:
    plan = Plan(RING, more='[report]\nrealm = "plant"\nsilence_s = 1.0\n[counters]\nevery_s = 0.5\n')
    async with (
        relayed(plan, dict.fromkeys(RING, USUAL_MS)) as relays,
        mesh(plan, relays) as nodes,
        archiving(folder, "plant", nodes["a"].url, "log", "pmu*/*"),
        chappe.connect(nodes["a"].url, name="pmu") as meter,
        chappe.connect(nodes["c"].url) as plant,
    ):
        await asyncio.gather(_degrade(relays[RING[0]], seconds), _measure(meter, seconds), _tell(plant, seconds))


async def _run_cloud(folder: Path, seconds: float) -> None:
    file = deployment({"leaf": ""}, {"leaf": "wxyz"}, ("w-x", "x-z", "w-y", "y-z"))
    file = msgspec.structs.replace(file, counters=Counters(every_s=0.5))
    async with (
        deployed(folder / "cloud", file) as made,
        archiving(folder, "cloud", made.url("z"), "cloud-log", "turbine/*", made.url("leaf")),
    ):
        await _turn(made, seconds)


@contextlib.asynccontextmanager
async def archiving(
    folder: Path, name: str, url: str, log: str, variables: str, *brokers: str
) -> AsyncIterator[NodeProcess]:
    """An archive as a process; RuntimeError if it does not end well."""
    path = folder / f"{name}.toml"
    path.write_text(ARCHIVE.format(name=name, url=url, log=log, variables=variables, brokers=json.dumps(brokers)))
    archive = await NodeProcess.start(path, module="chappe.archive")
    try:
        yield archive
    finally:
        code = await archive.end(signal.SIGTERM)
    if code:
        raise RuntimeError(f"the archive ended with {code}:\n" + "\n".join(archive.log))


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


async def _turn(made: Deployed, seconds: float) -> None:
    """A variable that rests for half a second, and somebody who wants it soon."""
    async with (
        chappe.connect(made.url("w"), name="turbine") as plant,
        chappe.connect(made.url("z"), name="desk", report_quality=True) as desk,
    ):
        speed = await plant.register("turbine", "speed", rate=RATE_HZ)
        await desk.watch("turbine", "speed", qos=chappe.Qos(latency=0.05, redundancy=2), on_violation=lambda _: None)
        with contextlib.suppress(chappe.errors.QosError):
            await desk.watch("turbine", "speed", qos=chappe.Qos(redundancy=3))
        loop = asyncio.get_running_loop()
        begun, step = loop.time(), 0
        while (at := loop.time() - begun) < seconds:
            if abs(at - seconds / 2) > REST_S / 2:
                speed.publish(3000.0 + math.sin(at))
            step += 1
            await asyncio.sleep(max(0.0, begun + step / RATE_HZ - loop.time()))


async def _tell(client: chappe.Client, seconds: float) -> None:
    """Readings, and now and then an alarm that must not be lost."""
    loop = asyncio.get_running_loop()
    begun, number = loop.time(), 0
    stored: list[asyncio.Future[str]] = []
    while loop.time() - begun < seconds:
        body = json.dumps({"number": number, "at": time.time_ns()}).encode()
        if number % 10 == 0:
            stored.append(client.publish("plant/alarm", body, durable=True))
        else:
            client.publish("plant/reading", body)
        number += 1
        await asyncio.sleep(0.05)
    await asyncio.gather(*stored)
