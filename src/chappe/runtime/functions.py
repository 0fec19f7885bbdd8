"""The condensation functions of a router: a worker process runs them, beside the one that forwards (GS-133).

The worker is a client of its router over a Unix socket in a folder of its own, let in by a token that is good once. It
is started with the first function, watched, started again when it dies, and ended with the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import random
import secrets
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from chappe.errors import ChappeError, ProtocolError
from chappe.links.address import parse
from chappe.links.backoff import Backoff
from chappe.links.link import Raw
from chappe.links.listen import Listener, listen
from chappe.status.condensation.calculators import CALCULATORS, TRIGGERS, registered
from chappe.status.condensation.functions import check
from chappe.status.condensation.worker_protocol import (
    BLAME_BYTES,
    Messages,
    Report,
    Run,
    Start,
    Stop,
    ToWorker,
    blamed,
    decode_report,
    encode,
)
from chappe.wire.control import Variable
from chappe.wire.management import Place

log = structlog.get_logger(__name__)

SUSPECT = 3  # times the worker may die in a function before that is stopped
STABLE_S = 10.0  # a worker that lived so long did not die of its start
CHUNK = 65_536

Admit = Callable[[str | None], bool]
Accept = Callable[[Raw, Admit], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Caps:
    """What functions may use."""

    memory_bytes: int = 512 << 20  # all together, beside what the worker needs itself
    calculation_s: float = 0.05  # of the processor, one calculation of registered code
    report_s: float = 0.25
    silent_s: float = 5.0  # a worker that does not report for so long is ended
    start_s: float = 30.0  # until its first report
    restart_s: float = 0.1  # before the first restart; doubled up to
    longest_s: float = 5.0


@dataclass(slots=True)
class Placed:
    """A function that a broker has placed here."""

    run: Run
    state: str = "waiting"
    reason: str = ""
    deaths: int = 0  # of the worker, while it calculated
    counters: dict[str, int] = field(default_factory=dict)


class Functions:
    """`accept(raw, admit)` welcomes a connection whose token `admit` takes, as a worker of this node."""

    def __init__(self, node: str, accept: Accept, caps: Caps | None = None) -> None:
        self.restarts = 0
        self.folder: Path | None = None  # of the worker that runs now: the socket, and whose turn it is
        self.caps = caps or Caps()
        self._node = node
        self._accept = accept
        self._placed: dict[int, Placed] = {}
        self._token = ""
        self._keeper: asyncio.Task[None] | None = None
        self._worker: asyncio.subprocess.Process | None = None
        self._needed = asyncio.Event()  # there are functions

    @property
    def pid(self) -> int | None:
        """Of the worker."""
        return self._worker.pid if self._worker is not None else None

    # --- commands of the broker

    def place(self, command: Place) -> str:
        """Run a function, in place of the one that has this output; the answer says why not, or is empty."""
        problem = check(command.function, command.inputs, registered(CALCULATORS), registered(TRIGGERS))
        if problem:
            return problem
        run = Run(command.output, command.function, command.inputs)
        number = command.output.variable_id
        known = self._placed.get(number)
        if known is not None and known.run == run and known.state != "stopped":
            return ""
        self._placed[number] = Placed(run)
        self._write(run)
        self._needed.set()
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"worker of {self._node}")
        return ""

    def displace(self, variable_id: int) -> str:
        """Stop the function with this output; one that is not there is no error."""
        if self._placed.pop(variable_id, None) is not None:
            self._write(Stop(variable_id))
        if not self._placed:
            self._needed.clear()
            self._end_worker()
        return ""

    def clear(self) -> None:
        """Stop all."""
        for variable_id in list(self._placed):
            self.displace(variable_id)

    def may(self, action: str, publisher: str, variable: str) -> bool:
        """Whether the worker may register or watch a variable: the outputs and inputs of what was placed, no others."""
        name = (publisher, variable)
        if action == "register":
            return any((each.run.output.publisher, each.run.output.variable) == name for each in self._placed.values())
        return any(_named(each, name) for placed in self._placed.values() for each in placed.run.inputs)

    def rows(self) -> list[dict[str, Any]]:
        """One row a function, for `List(what="functions")`."""
        return [
            {
                "publisher": placed.run.output.publisher,
                "variable": placed.run.output.variable,
                "id": number,
                "calculator": placed.run.function.calculator,
                "trigger": placed.run.function.trigger,
                "inputs": len(placed.run.inputs),
                "state": placed.state,
                "reason": placed.reason,
                "restarts": self.restarts,
                **placed.counters,
            }
            for number, placed in self._placed.items()
        ]

    async def close(self) -> None:
        """End the worker for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None

    # --- the worker

    async def _keep(self) -> None:
        """While there are functions, there is a worker."""
        backoff = Backoff(random.random, base_s=self.caps.restart_s, cap_s=self.caps.longest_s)
        while True:
            await self._needed.wait()
            await asyncio.sleep(backoff.next_s())
            folder = self.folder = Path(tempfile.mkdtemp(prefix="chappe-"))  # 0700
            listener: Listener | None = None
            since_s = asyncio.get_running_loop().time()
            try:
                listener = await listen(parse(f"unix://{folder}/router"), self._accepted)
                await self._run(folder)
            except (OSError, ChappeError) as error:
                log.error("worker not started", node=self._node, reason=str(error))
            finally:
                if listener is not None:
                    await listener.close()
                shutil.rmtree(folder, ignore_errors=True)
                self.folder = None
            if not self._needed.is_set() or asyncio.get_running_loop().time() - since_s > STABLE_S:
                backoff.reset()
            if self._needed.is_set():
                self.restarts += 1

    async def _run(self, folder: Path) -> None:
        """One life of the worker."""
        blame = folder / "blame"
        blame.write_bytes(bytes(BLAME_BYTES))
        self._token = secrets.token_urlsafe(32)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chappe.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self._worker = worker
        try:
            url, caps = f"unix://{folder}/router", self.caps
            self._write(
                Start(self._node, url, self._token, str(blame), caps.memory_bytes, caps.calculation_s, caps.report_s)
            )
            for placed in self._placed.values():
                if placed.state != "stopped":
                    placed.state, placed.reason = "waiting", ""
                    self._write(placed.run)
            reason = await self._listen_to(worker)
        finally:
            self._worker = None
            if worker.returncode is None:
                worker.kill()
            await worker.wait()
            _close_pipes(worker)
        if self._needed.is_set():
            self._blame(blamed(blame.read_bytes()), reason or _ending(worker.returncode))

    async def _listen_to(self, worker: asyncio.subprocess.Process) -> str:
        """Take its reports until it ends or is silent for too long; why it must be ended, empty if it ended itself."""
        assert worker.stdout is not None
        messages, patience_s = Messages(), self.caps.start_s
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    data = await worker.stdout.read(CHUNK)
                for body in messages.feed(data):
                    self._heard(decode_report(body))
                    patience_s = self.caps.silent_s
            except TimeoutError:
                return f"it did not report for {patience_s:g} s"
            except ProtocolError as error:
                return str(error)
            if not data:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.caps.silent_s):
                        await worker.wait()
                return ""

    def _heard(self, message: Report) -> None:
        for state in message.functions:
            placed = self._placed.get(state.variable_id)
            if placed is None or placed.state == "stopped":
                continue
            if state.state == "stopped":
                log.error("function stopped", node=self._node, function=_name(placed), reason=state.reason)
            placed.state, placed.reason, placed.counters = state.state, state.reason, state.counters

    def _blame(self, variable_id: int, reason: str) -> None:
        """The worker died: whose calculation it died in is stopped if that happens again and again."""
        placed = self._placed.get(variable_id)
        name = _name(placed) if placed is not None else ""
        log.error("worker ended", node=self._node, reason=reason, during=name)
        if placed is None:
            return
        placed.deaths += 1
        if placed.deaths >= SUSPECT:
            placed.state, placed.reason = "stopped", f"the worker ended {placed.deaths} times in it: {reason}"
            log.error("function stopped", node=self._node, function=name, reason=placed.reason)

    def _write(self, message: ToWorker) -> None:
        if self._worker is not None and self._worker.stdin is not None and not self._worker.stdin.is_closing():
            self._worker.stdin.write(encode(message))

    def _end_worker(self) -> None:
        """It ends by itself when it hears no more."""
        if self._worker is not None and self._worker.stdin is not None:
            self._worker.stdin.close()

    async def _accepted(self, raw: Raw) -> None:
        await self._accept(raw, self._admit)

    def _admit(self, token: str | None) -> bool:
        expected, self._token = self._token, ""
        return bool(expected) and hmac.compare_digest(expected.encode(), (token or "").encode())


def _named(variable: Variable, name: tuple[str, str]) -> bool:
    return (variable.publisher, variable.variable) == name


def _name(placed: Placed) -> str:
    return f"{placed.run.output.publisher}/{placed.run.output.variable}"


def _ending(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"


def _close_pipes(worker: asyncio.subprocess.Process) -> None:
    transport = getattr(worker, "_transport", None)
    if transport is not None:
        transport.close()
