"""The worker process: orders in through standard input, reports out through standard output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import structlog
import uvloop

from chappe.client.client import Client
from chappe.client.connecting import connect
from chappe.errors import ChappeError
from chappe.status.condensation.functions import Result
from chappe.status.condensation.worker_protocol import (
    Messages,
    Report,
    Run,
    Start,
    Stop,
    ToWorker,
    decode_request,
    encode,
)
from chappe.worker.alarm import Alarm
from chappe.worker.budget import Budget, confine
from chappe.worker.runner import Runner

log = structlog.get_logger(__name__)

CHUNK = 65_536


def main() -> int:
    """Run until standard input ends or the router is lost; 1 if it could not be reached."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the terminal is for the router, which then ends us
    reports = os.dup(1)
    os.dup2(2, 1)  # what a function prints must not be taken for a report
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_work(reports))


async def _work(reports: int) -> int:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    messages, first = Messages(), None
    waiting: list[ToWorker] = []
    while first is None:
        data = await orders.read(CHUNK)
        if not data:
            return 0
        waiting += [decode_request(body) for body in messages.feed(data)]
        first = waiting.pop(0) if waiting else None
    if not isinstance(first, Start):
        raise ChappeError(f"the first order is {type(first).__name__}, not Start")
    confine(first.memory_bytes)
    async with connect(
        first.url, name=f"functions-of-{first.router}"[:64], token=first.token, reconnect=False
    ) as client:
        lost = asyncio.Event()
        client.on_disconnect = lambda error: lost.set()
        alarm = Alarm(loop)
        functions = Functions(client, alarm, Budget(first.calculation_s, Path(first.blame)))
        tasks = [
            loop.create_task(functions.obey(orders, messages, waiting)),
            loop.create_task(functions.send_reports(reports, first.report_s)),
            loop.create_task(lost.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await functions.close()
            alarm.close()
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    return 0


class Functions:
    """The functions of this worker by the id of their output."""

    def __init__(self, client: Client, alarm: Alarm, budget: Budget) -> None:
        self._client = client
        self._alarm = alarm
        self._budget = budget
        self._loading = asyncio.Lock()  # one import at a time
        self._runners: dict[int, Runner] = {}

    async def obey(self, orders: asyncio.StreamReader, messages: Messages, waiting: list[ToWorker]) -> None:
        """Carry out orders until there are no more."""
        while True:
            for each in waiting:
                await self._carry_out(each)
            data = await orders.read(CHUNK)
            if not data:
                return
            waiting = [decode_request(body) for body in messages.feed(data)]

    async def _carry_out(self, message: ToWorker) -> None:
        if isinstance(message, Start):
            return
        number = message.variable_id if isinstance(message, Stop) else message.output.variable_id
        before = self._runners.pop(number, None)
        run = message if isinstance(message, Run) else None
        output = await before.replaced(run) if before is not None else None
        if run is not None:
            self._runners[number] = Runner(
                run, self._client, self._alarm, self._budget, self._loading, self._share, output
            )

    def _share(self, variable_id: int, result: Result) -> None:
        for runner in self._runners.values():
            if runner.takes(variable_id):
                asyncio.get_running_loop().call_soon(runner.share, variable_id, result)

    async def send_reports(self, descriptor: int, every_s: float) -> None:
        """Report at once and then in intervals, or what the router hears is silence."""
        while True:
            report = Report(tuple(runner.report for runner in self._runners.values()))
            await asyncio.to_thread(_write, descriptor, encode(report))
            await asyncio.sleep(every_s)

    async def close(self) -> None:
        for runner in self._runners.values():
            await runner.end()


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]
