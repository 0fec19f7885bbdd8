"""What happens in the demo while values flow: a condensation, changes of mode, a flooded alert; announced in advance.

Every change is announced to the checks before its first round, and counts as settled some time after it is done: in
between the old rule or the new one may be in force.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from chappe.client.client import Client
from chappe.demo import phasors
from chappe.demo.phasors import EMERGENCY, NORMAL, round_of, stamp
from chappe.demo.processes import Child, DemoError
from chappe.demo.state import State
from chappe.wire.base import Done, Request
from chappe.wire.management import ChangeMode, ClearFlood, Function, Input, SetFlood

LEAD_S = 1.0  # from an announcement to its first round, and as long again until it is done
HOLD_S = 3.5
PAUSE_S = 1.0
START_S = 30.0  # until the worker of the condensation has published


def soon() -> int:
    """The first round of what is announced now."""
    return round_of(time.time_ns() + round(LEAD_S * 1e9))


class Story:
    """Acts on the brokers as an operator, and on an edge as the creator of a condensation."""

    def __init__(self, root: Client, creator: Client, watchers: Child, listeners: Child, state: State) -> None:
        self._root = root
        self._creator = creator
        self._watchers = watchers
        self._listeners = listeners
        self._state = state

    async def run(self) -> None:
        """The condensation once, modes and floods again and again."""
        await asyncio.gather(self.condense(), self._over_and_over())

    async def _over_and_over(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            await self.mode(EMERGENCY)
            await asyncio.sleep(HOLD_S)
            await self.mode(NORMAL)
            await asyncio.sleep(PAUSE_S)
            await self.flood(True)
            await asyncio.sleep(HOLD_S)
            await self.flood(False)

    async def condense(self) -> None:
        """Have the sum of some variables made in the network, and watch it from the other cloud."""
        publisher, variable = phasors.TOTAL
        inputs = tuple(Input(phasors.PUBLISHER, name) for name in phasors.NAMES[: phasors.SUMMED])
        await self._creator.condense(
            Function(
                publisher=publisher, variable=variable, inputs=inputs, calculator="builtin:sum", trigger="event",
                interval_ns=round(1e9 / phasors.RATE),
            )
        )  # fmt: skip
        self._watchers.order(condensed=round_of(time.time_ns()))
        self._state.happened(
            f"condensation {publisher}/{variable}: the sum of {phasors.SUMMED} variables is made beside the publisher"
        )
        try:
            async with asyncio.timeout(START_S):
                while not self._state.received("condensed"):  # noqa: ASYNC110  a report says so
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise DemoError(f"no value of the condensation came within {START_S:g} s") from None
        self._watchers.order(runs=soon())
        self._state.condensed = True

    async def mode(self, mode: int) -> None:
        """Change the mode of everything: `third` gets all values in an emergency, `tenth` none."""
        await self._announce(self._watchers, change=soon(), modes=[self._state.mode, mode])
        began = time.monotonic()
        await self._operate(ChangeMode(id=0, mode=mode))
        took_ms = (time.monotonic() - began) * 1e3
        self._watchers.order(settle=soon(), mode=mode)
        self._state.mode = mode
        self._state.changes += 1
        effect = "`third` gets every value, `tenth` none" if mode == EMERGENCY else "`third` and `tenth` are back"
        self._state.happened(f"mode {mode} in both clouds after {took_ms:.0f} ms: {effect}")

    async def flood(self, on: bool) -> None:
        """Flood the alert from the root, or stop it."""
        await self._announce(self._listeners, change=soon())
        publisher, variable = phasors.ALERT
        request = SetFlood(id=0, publisher=publisher, variable=variable)
        await self._operate(request if on else ClearFlood(id=0, publisher=publisher, variable=variable))
        self._listeners.order(settle=soon(), flooded=on)
        self._state.floods += on
        effect = "every router gets it" if on else "nobody gets it unasked"
        self._state.happened(f"alert {publisher}/{variable} is {'' if on else 'no longer '}flooded: {effect}")

    async def _announce(self, worker: Child, **order: Any) -> None:
        """Say it, and wait until its first round is well under way."""
        worker.order(**order)
        await asyncio.sleep((stamp(order["change"]) - time.time_ns()) / 1e9 + LEAD_S)

    async def _operate(self, request: Request) -> None:
        answer = await self._root.operate(request)
        if not isinstance(answer, Done):
            raise DemoError(f"the root broker answered {type(answer).__name__} to {type(request).__name__}")
