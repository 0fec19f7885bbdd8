"""Condensation functions: many variables in, one new variable out (GS-130 to GS-132, GS-137).

    inputs -> input filter -> trigger, with the latest value of each input -> calculator -> output filter -> output

Nothing here reads a clock or a socket; the worker process of a router runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from chappe.status.condensation.calculators import Setup, Table, calculator_of
from chappe.status.condensation.checks import check as check
from chappe.status.condensation.checks import output_of as output_of
from chappe.status.condensation.triggers import trigger_of
from chappe.wire.base import Variable
from chappe.wire.management import Function

LARGEST, SMALLEST = (1 << 63) - 1, -(1 << 63)


class Result(NamedTuple):
    """A value of the output, and the time it is stamped with."""

    value: Any
    created: int


class Holder(Protocol):
    """The newest event of an input; no stamp: there was none."""

    @property
    def value(self) -> Any: ...
    @property
    def created(self) -> int | None: ...


class Condensation:
    """One function. `feed` and `tick` give what to publish, or None.

    ValueError if the function is not right; LookupError or what the import raised if its entry point cannot be had.
    """

    def __init__(self, function: Function, output: Variable, inputs: Sequence[Variable]) -> None:
        problem = check(function, inputs)
        if problem:
            raise ValueError(problem)
        self.setup = Setup(function, output, tuple(inputs))
        self.table = Table.of(self.setup)
        self.calculator = calculator_of(self.setup, self.table)
        self.trigger = trigger_of(self.setup)
        self.counters = dict.fromkeys(
            ("events", "old", "filtered", "fired", "soon", "early", "nothing", "below", "results"), 0
        )
        self._positions = {variable.variable_id: at for at, variable in enumerate(inputs)}
        self._filters = function.low is not None or function.high is not None
        self._filters_out = function.out_low is not None or function.out_high is not None
        self._paced_ns = 0 if function.trigger == "time" else function.interval_ns
        self._last_ns = -1

    def hears(self, variable_id: int) -> bool:
        """Whether every event of an input must be fed; of the others the newest, before it can fire, is enough."""
        return self._filters or self.trigger.hears(self._positions[variable_id])

    def feed(self, variable_id: int, value: Any, created: int, now_ns: int) -> Result | None:
        """An event of an input. One that is not newer than the last, or that the filter drops, changes nothing."""
        at = self._positions.get(variable_id)
        if at is None:
            return None
        table, counters = self.table, self.counters
        counters["events"] += 1
        if created <= table.created[at] and table.values[at] is not None:
            counters["old"] += 1
            return None
        function = self.setup.function
        if self._filters and not self.calculator.accepts(value, function.low, function.high):
            counters["filtered"] += 1
            return None
        table.values[at], table.created[at] = value, created
        if not self.trigger.arrived(at, now_ns):
            return None
        return self._fire(max(table.created))

    def refresh(self, holders: Iterable[tuple[int, Holder]]) -> None:
        """Take the newest events of inputs that the function does not hear (see `hears`), by position; none fires."""
        values, stamps = self.table.values, self.table.created
        for at, holder in holders:
            created = holder.created
            if created is not None and (created > stamps[at] or values[at] is None):
                values[at], stamps[at] = holder.value, created
                self.counters["events"] += 1

    def tick(self, now_ns: int) -> Result | None:
        """The time that `deadline_ns` gave has come."""
        due_ns = self.trigger.due(now_ns)
        return None if due_ns is None else self._fire(due_ns)

    def deadline_ns(self) -> int | None:
        """When to call `tick`; None: not at all, a time that is over: at once."""
        return self.trigger.deadline_ns()

    def _fire(self, created: int) -> Result | None:
        counters, function = self.counters, self.setup.function
        counters["fired"] += 1
        if self._paced_ns and created // self._paced_ns <= self._last_ns // self._paced_ns:
            counters["soon"] += 1
            return None
        if self.calculator.needs_all and not self.table.complete:
            counters["early"] += 1
            return None
        value = fitting(self.setup.output.type, self.calculator.calculate())
        if value is None:
            counters["nothing"] += 1
            return None
        if self._filters_out and not self.calculator.accepts(value, function.out_low, function.out_high):
            counters["below"] += 1
            return None
        counters["results"] += 1
        self._last_ns = max(created, self._last_ns + 1)  # two results never have one stamp: the later would be dropped
        return Result(value, self._last_ns)


def covers(variable: Variable, interval_ns: int, created: int) -> bool:
    """Whether an event with that stamp is one of those that a subscriber at that interval gets."""
    every = interval_ns * variable.rate_num // variable.rate_den
    return every <= 1 or created * variable.rate_num // variable.rate_den % every == 0


def fitting(kind: str, value: Any) -> Any:
    """The value as the type of the output has it; None if it has no such value."""
    if value is None:
        return None
    if kind == "float":
        number = float(value)
        return number if math.isfinite(number) else None
    if kind == "int":
        whole = int(value) if not isinstance(value, float) or math.isfinite(value) else None
        return whole if whole is not None and SMALLEST <= whole <= LARGEST else None
    return bool(value) if kind == "bool" else value
