"""One function at work: watches its inputs, fires, publishes its output."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import structlog

from chappe.client._status import StatusEvent, Watch
from chappe.client._variables import Variable as Published
from chappe.client.client import Client
from chappe.client.structs import decoder_of
from chappe.errors import ChappeError, LinkError
from chappe.status.condensation.calculators import CALCULATORS, TRIGGERS, load
from chappe.status.condensation.functions import Condensation, Result, covers
from chappe.status.condensation.worker_protocol import FunctionState, Run
from chappe.worker.alarm import Alarm
from chappe.worker.budget import Budget, BudgetExceeded
from chappe.worker.codec import encoder_of

log = structlog.get_logger(__name__)

START = 20  # times the limit of one calculation that making a calculator may take
TURN = 100  # late firings made up for before values are taken in again
FIRST_S, LONGEST_S = 0.05, 1.0  # between two attempts to watch an input that is not here yet


Shared = Callable[[int, Result], None]


class Runner:
    """Ingest and trigger are apart (GS-138): values are taken as they come, the alarm keeps the times of firing.

    An error of the function stops it or is counted, and touches no other. `shared(variable_id, result)` hands a result
    to the functions of this worker: a router sends nothing back to where it came from. `output`: is registered already.
    """

    def __init__(
        self, run: Run, client: Client, alarm: Alarm, budget: Budget, loading: asyncio.Lock, shared: Shared,
        output: Published | None,
    ) -> None:  # fmt: skip
        self.run = run
        self.state = "waiting"
        self.reason = ""
        self.errors = 0  # calculations that raised
        self._client = client
        self._alarm = alarm
        self._budget = budget
        self._loading = loading
        self._shared = shared
        self._foreign = "entry:" in (run.function.calculator[:6], run.function.trigger[:6])
        self._condensation: Condensation | None = None
        self._encode = encoder_of(run.output.type)
        self._output = output
        self._positions = {variable.variable_id: at for at, variable in enumerate(run.inputs)}
        self._watches: list[Watch] = []
        self._unheard: list[tuple[int, Watch]] = []  # by position
        self._task = asyncio.get_running_loop().create_task(self._start(), name=f"function {self.name}")

    @property
    def name(self) -> str:
        return f"{self.run.output.publisher}/{self.run.output.variable}"

    @property
    def report(self) -> FunctionState:
        counters = dict(self._condensation.counters) if self._condensation is not None else {}
        if self._condensation is not None:
            counters.update(missed=self._condensation.trigger.missed, errors=self.errors)
        return FunctionState(self.run.output.variable_id, self.state, self.reason, counters)

    async def end(self) -> None:
        """It does nothing any more; what it has at the router goes with the connection."""
        self.state = "stopped"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def replaced(self, run: Run | None) -> Published | None:
        """End it and give back what it has; its output stays, and is handed on, where another form of it follows."""
        await self.end()
        output, self._output = self._output, None
        with contextlib.suppress(ChappeError):
            for watch in self._watches:
                await self._client.unwatch(watch)
            if output is not None and (run is None or run.output != self.run.output):
                await self._client.withdraw(output)
                output = None
        return output

    # --- setting up

    async def _start(self) -> None:
        try:
            await self._load()
            run = self.run
            made = self._guarded(Condensation, run.function, run.output, run.inputs, times=START)
            if made is None:
                return
            self._condensation = made
            await self._register()
            for variable in self.run.inputs:
                await self._watch(made, variable.variable_id)
        except LinkError:
            raise
        except Exception as error:  # what an entry point raises is its own; it must not end the worker
            self._stop(f"it could not be started: {error or type(error).__name__}")
            return
        if self.state == "waiting":
            self.state = "running"
            self._due()

    async def _load(self) -> None:
        """Import what is registered: that may take long, and the other functions go on meanwhile."""
        for group, named in ((CALCULATORS, self.run.function.calculator), (TRIGGERS, self.run.function.trigger)):
            kind, _, name = named.partition(":")
            if kind == "entry":
                async with self._loading:
                    with self._budget.loading(self.run.output.variable_id):
                        await asyncio.to_thread(load, group, name)

    async def _register(self) -> None:
        if self._output is not None:
            return
        output = self.run.output
        rate = Fraction(output.rate_num * 1_000_000_000, output.rate_den) or None
        self._output = await self._client.register(
            output.publisher, output.variable, rate=rate, type=output.type, priority=output.priority,
            options=output.options,
        )  # fmt: skip

    async def _watch(self, condensation: Condensation, variable_id: int) -> None:
        """Watch an input, for as long as it takes the broker to bring it here."""
        at = self._positions[variable_id]
        variable, asked = self.run.inputs[at], self.run.function.inputs[at]
        heard, pause_s = condensation.hears(variable_id), FIRST_S
        while True:
            try:
                watch = await self._client.watch(
                    variable.publisher, variable.variable, max_queue=1,
                    interval=Fraction(asked.interval_ns, 1_000_000_000) or None,
                    callback=self._heard(variable_id) if heard else None,
                )  # fmt: skip
                break
            except LinkError:
                raise
            except ChappeError as error:
                self.reason = f"input {variable.publisher}/{variable.variable}: {error}"
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_S)
        if self.state == "waiting":  # the first value may have come, and stopped it, before we hear of it
            self.reason = ""
        if watch.decoder is None:
            watch.decoder = decoder_of(variable.type)
        self._watches.append(watch)
        if not heard:
            self._unheard.append((at, watch))

    # --- at work

    def _heard(self, variable_id: int) -> Callable[[StatusEvent], None]:
        def arrived(event: StatusEvent) -> None:
            if self._condensation is not None and self.state != "stopped":
                self._feed(self._condensation, variable_id, event.value, event.created)

        return arrived

    def takes(self, variable_id: int) -> bool:
        """Whether that is one of its inputs."""
        return variable_id in self._positions

    def share(self, variable_id: int, result: Result) -> None:
        """A function of the same worker has a result; it counts if it is an input."""
        condensation = self._condensation
        at = self._positions.get(variable_id)
        if condensation is None or at is None or self.state == "stopped":
            return
        if not covers(self.run.inputs[at], self.run.function.inputs[at].interval_ns, result.created):
            return
        if condensation.hears(variable_id):
            self._feed(condensation, variable_id, result.value, result.created)
        else:
            condensation.refresh([(at, result)])

    def _feed(self, condensation: Condensation, variable_id: int, value: Any, created: int) -> None:
        result = self._guarded(self._fed, condensation, variable_id, value, created)
        if result is not None:
            self._publish(result)

    def _fed(self, condensation: Condensation, variable_id: int, value: Any, created: int) -> Result | None:
        """Of inputs that cannot fire it the newest value is enough: nothing is done for all the others."""
        if self._unheard:
            condensation.refresh(self._unheard)
        return condensation.feed(variable_id, value, created, time.time_ns())

    def _ticked(self, condensation: Condensation) -> Result | None:
        condensation.refresh(self._unheard)
        return condensation.tick(time.time_ns())

    def _due(self) -> None:
        """The alarm: fire for each time that has come, then set it for the next."""
        condensation, turn = self._condensation, 0
        while condensation is not None and self.state != "stopped":
            result = self._guarded(self._ticked, condensation)
            if result is not None:
                self._publish(result)
            deadline_ns = self._guarded(condensation.deadline_ns)
            turn += 1
            if deadline_ns is None or self.state == "stopped":
                return
            if deadline_ns > time.time_ns() or turn == TURN:
                self._alarm.at(deadline_ns, self._due)
                return

    def _publish(self, result: Result) -> None:
        if self._output is None:
            return
        try:
            self._output.publish(self._encode(result.value), result.created)
        except (TypeError, ValueError, OverflowError) as error:
            self._count(error)
            return
        self._shared(self.run.output.variable_id, result)

    def _guarded(self, call: Callable[..., Any], *arguments: Any, times: float = 1.0) -> Any:
        """What it gives; None if it raised. Code that is not ours has a time limit, after which it is stopped."""
        try:
            if not self._foreign:
                return call(*arguments)
            return self._budget.run(self.run.output.variable_id, times, call, *arguments)
        except BudgetExceeded as error:
            self._stop(str(error))
        except MemoryError:
            self._stop("it needs more memory than the worker may have")
        except Exception as error:
            if self._condensation is None:
                raise
            self._count(error)
        return None

    def _count(self, error: Exception) -> None:
        self.errors += 1
        self.reason = f"{type(error).__name__}: {error}"[:500]

    def _stop(self, reason: str) -> None:
        log.error("function stopped", function=self.name, reason=reason)
        self.state, self.reason = "stopped", reason
