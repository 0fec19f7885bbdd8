"""What a condensation function calculates: built-in aggregates, expressions, registered Python classes (GS-130).

A calculator is made once with its setup and the table of latest values, and asked for a result at each firing of the
trigger. A Python class is named by an entry point of the group `chappe.calculators` of a package that is installed on
the machine of the router; code never comes over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from chappe.status.condensation.expression_functions import NO_RESULT, bounded, mean, spread, total
from chappe.status.condensation.expressions import Expression, parse_expression
from chappe.status.condensation.naming import names_of
from chappe.wire.base import Variable
from chappe.wire.management import Function

CALCULATORS, TRIGGERS = "chappe.calculators", "chappe.triggers"  # groups of entry points
NUMBERS = ("int", "float", "bool")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a function gets when it is placed."""

    function: Function
    output: Variable
    inputs: tuple[Variable, ...]

    @property
    def alerts(self) -> frozenset[int]:
        """Positions of the inputs that are alerts."""
        return frozenset(at for at, variable in enumerate(self.inputs) if variable.rate_num == 0)

    @property
    def counted(self) -> tuple[int, ...]:
        """Positions that aggregates run over: where alerts and others are mixed, the alerts say when, not what."""
        periodic = [at for at, variable in enumerate(self.inputs) if variable.rate_num != 0]
        return tuple(periodic or range(len(self.inputs)))


@dataclass(slots=True)
class Table:
    """The latest value of each input by position; None until the first."""

    values: list[Any]
    created: list[int]  # 0 until the first
    needed: list[int] = field(default_factory=list)  # positions that must have a value before anything is calculated

    @classmethod
    def of(cls, setup: Setup) -> Table:
        """An empty one; it is complete when every input that is no alert has a value."""
        count = len(setup.inputs)
        return cls([None] * count, [0] * count, [at for at in range(count) if at not in setup.alerts])

    @property
    def complete(self) -> bool:
        if self.needed:
            self.needed = [at for at in self.needed if self.values[at] is None]
        return not self.needed


class Calculator:
    """Base of calculators in Python. A subclass has `calculate`, and `accepts` if it filters values of user types."""

    needs_all = True  # nothing is calculated before every input that is no alert has a value

    def __init__(self, setup: Setup, table: Table) -> None:
        self.setup = setup
        self.table = table

    def accepts(self, value: Any, low: float | None, high: float | None) -> bool:
        """Whether a value passes a filter; asked for inputs and for the result (GS-132)."""
        return within(value, low, high)

    def calculate(self) -> Any:
        """The result, or None: then nothing is published."""
        raise NotImplementedError


def within(value: Any, low: float | None, high: float | None) -> bool:
    """The filter of built-in types: `low` drops what is below it, `high` what is above; what is no number, too."""
    return (low is None or value >= low) and (high is None or value <= high)


class Aggregate(Calculator):
    """One number of all inputs."""

    def __init__(self, setup: Setup, table: Table, apply: Callable[[Sequence[Any]], Any], partial: bool) -> None:
        super().__init__(setup, table)
        self.needs_all = not partial
        self._apply = apply
        self._over = setup.counted

    def calculate(self) -> Any:
        values = self.table.values
        known = [value for at in self._over if (value := values[at]) is not None]
        try:
            return bounded(self._apply(known))
        except NO_RESULT:
            return None


class Weighted(Calculator):
    """The sum of the inputs, each times its weight."""

    def __init__(self, setup: Setup, table: Table, weights: Sequence[float]) -> None:
        super().__init__(setup, table)
        self._weights = weights

    def calculate(self) -> Any:
        values = self.table.values
        terms = [weight * values[at] for at, weight in zip(self.setup.counted, self._weights, strict=True)
                 if values[at] is not None]  # fmt: skip
        try:
            return bounded(total(terms))
        except NO_RESULT:
            return None


class Largest(Calculator):
    """The largest input: its number, or the whole value it is in.

    Of user types `field` (a name, or an index where the type has none) is compared. A result of the same type is that
    value itself, one of another user type holds it as its field `source` (example 3 of the reference).
    """

    def __init__(self, setup: Setup, table: Table, field_name: str) -> None:
        super().__init__(setup, table)
        self._field = field_name
        kinds = {setup.inputs[at].type for at in setup.counted}
        self._wrap = bool(field_name) and setup.output.type not in kinds

    def calculate(self) -> Any:
        best: Any = None
        most: Any = None
        for at in self.setup.counted:
            value = self.table.values[at]
            if value is None:
                continue
            size = part(value, self._field) if self._field else value
            if size == size and (most is None or size > most):
                best, most = value, size
        return {"source": best} if self._wrap and most is not None else best


class Calculated(Calculator):
    """An expression."""

    def __init__(self, setup: Setup, table: Table, expression: Expression) -> None:
        super().__init__(setup, table)
        self._expression = expression

    def calculate(self) -> Any:
        return self._expression(self.table.values)


def part(value: Any, name: str) -> Any:
    """A field of a value of a user type: a struct, a mapping or, by index, a list."""
    if isinstance(value, Mapping):
        return value[name]
    if isinstance(value, Sequence):
        return value[int(name)]
    return getattr(value, name)


AGGREGATES: dict[str, tuple[Callable[[Sequence[Any]], Any], str]] = {
    "sum": (total, "same"), "mean": (mean, "float"), "min": (min, "same"), "max": (max, "same"),
    "range": (spread, "same"), "count": (len, "int"), "any": (any, "bool"), "all": (all, "bool"),
}  # fmt: skip
BUILTINS = (*AGGREGATES, "largest", "weighted")


def calculator_of(setup: Setup, table: Table) -> Calculator:
    """The calculator that a checked function names; loads the entry point if it is one."""
    kind, _, rest = setup.function.calculator.partition(":")
    if kind == "expression":
        return Calculated(setup, table, expression_of(setup.function, setup.inputs))
    if kind == "entry":
        made = load(CALCULATORS, rest)(setup, table)
        if not isinstance(made, Calculator):
            raise TypeError(f"entry point {rest!r} makes a {type(made).__name__}, not a Calculator")
        return made
    name, _, argument = rest.partition(":")
    if name == "largest":
        return Largest(setup, table, argument)
    if name == "weighted":
        return Weighted(setup, table, weights_of(argument))
    return Aggregate(setup, table, AGGREGATES[name][0], partial=name == "count")


def expression_of(function: Function, inputs: Sequence[Variable]) -> Expression:
    """The expression of a function over its inputs; ExpressionError says what is wrong with it."""
    setup = Setup(function, inputs[0], tuple(inputs))
    types = [variable.type for variable in inputs]
    text = function.calculator.partition(":")[2]
    return parse_expression(text, names_of([variable.variable for variable in inputs]), types, setup.counted)


def weights_of(text: str) -> list[float]:
    """Numbers with commas between them; ValueError if they are not."""
    return [float(word) for word in text.split(",")]


def registered(group: str) -> frozenset[str]:
    """Names of the entry points that this machine has; nothing is imported."""
    return frozenset(entry.name for entry in entry_points(group=group))


def load(group: str, name: str) -> Callable[..., Any]:
    """What the entry point refers to."""
    found = [entry for entry in entry_points(group=group) if entry.name == name]
    if not found:
        raise LookupError(f"no installed package has an entry point {name!r} in the group {group}")
    made: Callable[..., Any] = found[0].load()
    return made
