"""The loop, closed: a link becomes slow, the route leaves it, and Spark says so as an event; all of it in a report.

Three measuring nodes, an archive beside them and a continuous pipeline, apart from the clouds of the demo. Nobody but
the measuring nodes moves the route: the pipeline looks at history, which takes seconds where they take milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import chappe
from chappe.client.client import Client
from chappe.demo.processes import Child, DemoError
from chappe.demo.state import State
from chappe.links.delays import DelayRelay
from chappe.links.ports import free_ports
from chappe.pipeline.spark import missing

LEAST_S = 90.0  # shorter demos end before Spark has said a word
NODES = ("west", "north", "east")
LINKS = {("west", "east"): 1.0, ("west", "north"): 4.0, ("north", "east"): 4.0}  # ms, each way
SLOWED, SLOW_MS, ALERT_MS = ("west", "east"), 60.0, 40.0
START_S, SETTLE_S, ROUTE_S, ALERT_S, REPORT_S = 90.0, 60.0, 20.0, 40.0, 60.0
LOOK_S = 0.1
REPORT = "chappe-demo-report.html"

_PLACES = {"archive": "history", "log": "log", "work": "work"}
_NODE = """\
[node]
name = "{name}"
[[listen]]
url = "tcp://127.0.0.1:{port}"
[log]
level = "warning"
[mesh]
[measure]
interval_s = 0.5
[report]
realm = "demo"
silence_s = 1.0
"""
_PEER = '[[peer]]\nname = "{name}"\nreconnect_max_s = 0.5\n'
_ARCHIVE = """\
[archive]
name = "demo"
url = "tcp://127.0.0.1:{port}"
folder = "history"
log = "log"
discover_s = 0.5
report_s = 1.0
"""
_RULES = f"""\
[[alert]]
name = "slow"
when = "latency_ms > {ALERT_MS:g}"
severity = "critical"
"""


def wanted(seconds: float | None) -> bool:
    """Long enough, and Spark is there."""
    return (seconds is None or seconds >= LEAST_S) and not missing()


def how(seconds: float | None) -> str:
    """One line on how to see it, where it is left out."""
    reason = missing()
    why = reason or f"the demo lasts {seconds:g} s"
    return f"no pipeline in this demo ({why}): with Java 17 and PySpark, make demo SECONDS={LEAST_S:g} adds one"


class Loop:
    """Its nodes, archive and pipeline; `happened` of the state says what it shows."""

    def __init__(self, folder: Path, state: State) -> None:
        self._folder = folder / "loop"
        self._state = state
        self._degraded_s = 0.0  # when the link was made slow
        self._marks: list[str] = []  # of the report
        self.done = False
        self.found: list[str] = []  # what went wrong

    async def run(self) -> None:
        """The act, then nothing until the demo ends; what fails is reported at the end and stops nobody else."""
        async with AsyncExitStack() as stack:
            try:
                await self._act(stack)
                self.done = True
            except (chappe.ChappeError, TimeoutError, OSError) as error:
                self.found.append(f"pipeline: {error or 'it did not come in time'}")
                self._state.happened(self.found[-1])
            await asyncio.Event().wait()

    def verdict(self) -> list[str]:
        """What is wrong: an alert or a report that should be there and is not."""
        if self.done or self.found or not self._degraded_s:
            return self.found
        late_s = time.monotonic() - self._degraded_s
        return [f"pipeline: nothing came of the slow link within {late_s:.0f} s"] if late_s > ALERT_S else []

    async def _act(self, stack: AsyncExitStack) -> None:
        self._folder.mkdir()
        relays = await self._mesh(stack)
        await self._beside(stack)
        client = await stack.enter_async_context(chappe.connect(self._url("west"), name="demo-loop"))
        alerts = await client.subscribe("pipeline/alerts/#")
        await _until(SETTLE_S, lambda: _goes(client, ["east"]))
        self._state.happened("a measuring mesh, its archive and a continuous pipeline run; events go west → east")
        relays[SLOWED].delay_s = SLOW_MS / 1e3
        self._degraded_s = time.monotonic()
        self._mark("made slow on purpose")
        self._state.happened(f"the link west–east is made slow on purpose: {SLOW_MS:g} ms each way")
        async with asyncio.TaskGroup() as group:
            moved = group.create_task(_until(ROUTE_S, lambda: _goes(client, ["north", "east"])))
            alert = group.create_task(self._alert(alerts))
            moved_s = await moved - self._degraded_s
            self._mark("the route has left it")
            self._state.happened(f"measured: events go west → north → east {moved_s:.1f} s after it")
            alert_s = await alert - self._degraded_s
        self._state.happened(f"{alert_s - moved_s:.1f} s later the pipeline's alert has come, as an event")
        await self._report()

    async def _mesh(self, stack: AsyncExitStack) -> dict[tuple[str, str], DelayRelay]:
        ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self._ports = ports
        relays = {
            pair: await stack.enter_async_context(DelayRelay(ports[pair[1]], delay / 1e3))
            for pair, delay in LINKS.items()
        }
        nodes = []
        for name in NODES:
            text = _NODE.format(name=name, port=ports[name])
            for (a, b), relay in relays.items():
                if name in (a, b):
                    text += _PEER.format(name=b if name == a else a)
                    text += f'url = "tcp://127.0.0.1:{relay.port}"\n' if name == a else ""
            file = self._folder / f"{name}.toml"
            file.write_text(text)
            nodes.append(await self._child(stack, name, "chappe.cli", "node", "--dev", str(file)))
        for node in nodes:
            await node.until(lambda line: line == "serving")
        return relays

    async def _beside(self, stack: AsyncExitStack) -> None:
        """The archive and the pipeline, as a user would start them."""
        file = self._folder / "archive.toml"
        file.write_text(_ARCHIVE.format(port=self._ports["north"]))
        archive = await self._child(stack, "archive", "chappe.cli", "archive", "run", str(file))
        await archive.until(lambda line: line == "serving")
        rules = self._folder / "rules.toml"
        rules.write_text(_RULES)
        where = [f"--{option}={self._folder / place}" for option, place in _PLACES.items()]
        self._pipeline = await self._child(
            stack, "pipeline", "chappe.cli", "pipeline", "run", "ingest", "links", "alerts", "--continuous",
            f"--set=alerts.rules={rules}", f"--node={self._url('north')}", *where, heard=False,
        )  # fmt: skip
        await self._pipeline.wait_for_line("alerts: waits", START_S)

    async def _child(self, stack: AsyncExitStack, name: str, *arguments: str, heard: bool = True) -> Child:
        child = await Child.start(name, self._folder, *arguments, heard=heard)
        stack.push_async_callback(child.stop)
        return child

    async def _alert(self, alerts: chappe.Subscription) -> float:
        """When the pipeline's alert about the slow link came."""
        async with asyncio.timeout(ALERT_S):
            async for message in alerts:
                event = json.loads(message.body)
                if event["state"] == "raised" and {event["node"], event["peer"]} == set(SLOWED):
                    return time.monotonic()
        raise DemoError("the subscription to alerts has ended")

    async def _report(self) -> None:
        """The report, as a user would ask for it."""
        out = Path(tempfile.gettempdir()) / REPORT
        making = await Child.start(
            "report", self._folder, "chappe.cli", "pipeline", "report", f"--work={self._folder / _PLACES['work']}",
            f"--out={out}", "--title=Demo: a link that became slow", *self._marks, heard=False,
        )  # fmt: skip
        async with asyncio.timeout(REPORT_S):
            code = await making.process.wait()
        if code:
            raise await making.failure()
        self._state.happened(f"the report shows both: {out}")

    def _mark(self, text: str) -> None:
        self._marks.append(f"--mark={datetime.now(UTC).isoformat()}={text}")

    def _url(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self._ports[name]}"


async def _goes(client: Client, way: list[str]) -> bool:
    """Whether events go to the last of these nodes by the others."""
    rows = await client.list("routes")
    return any(list(row["way"]) == way for row in rows if row["to"] == way[-1])


async def _until(within_s: float, holds: Callable[[], Awaitable[bool]]) -> float:
    """When it held for the first time."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110  another process knows
            await asyncio.sleep(LOOK_S)
    return time.monotonic()
