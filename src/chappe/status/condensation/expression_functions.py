"""What an expression may call, and the arithmetic that keeps its numbers small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Number = int | float | bool
LARGEST, SMALLEST = (1 << 63) - 1, -(1 << 63)
NO_RESULT = (ArithmeticError, ValueError)  # what a calculation without a result raises


def bounded(number: Number) -> Number:
    """The number itself; ArithmeticError if it is not one or has more than 64 bits."""
    if number.__class__ is float:
        if number != number:
            raise ArithmeticError("not a number")
    elif not SMALLEST <= number <= LARGEST:
        raise OverflowError("more than 64 bits")
    return number


def power(base: Number, exponent: Number) -> Number:
    """`base ** exponent`, refused before it is calculated where it would have more than 64 bits."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and exponent > 0 and (int(abs(base)).bit_length() - 1) * exponent > 63:
        raise OverflowError("more than 64 bits")
    result: Any = base**exponent
    if isinstance(result, complex):
        raise ArithmeticError("a root of a negative number")
    number: Number = result
    return number


def total(numbers: Sequence[Number]) -> Number:
    """Their sum, whatever their order: floats are rounded once, at the end."""
    return sum(numbers) if all(isinstance(number, int) for number in numbers) else math.fsum(numbers)


def mean(numbers: Sequence[Number]) -> float:
    return total(numbers) / len(numbers)


def spread(numbers: Sequence[Number]) -> Number:
    """From the smallest to the largest."""
    return max(numbers) - min(numbers)


@dataclass(frozen=True, slots=True)
class Signature:
    """A function: an aggregate gets a list, the others their arguments."""

    name: str
    apply: Callable[..., Number]
    result: str  # int, float, bool, or `same` as the arguments
    least: int = 1
    most: int = 1
    aggregate: bool = False  # without arguments it runs over all inputs
    conditions: bool = False  # its arguments are conditions

    def takes(self, count: int) -> bool:
        return self.aggregate or self.least <= count <= self.most

    def counts(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"

    def gives(self, kinds: Sequence[str]) -> str:
        """The type of its result."""
        if self.result != "same":
            return self.result
        return "float" if "float" in kinds else "int"


def _aggregate(name: str, apply: Callable[..., Number], result: str, conditions: bool = False) -> Signature:
    return Signature(name, apply, result, aggregate=True, conditions=conditions)


FUNCTIONS: dict[str, Signature] = {
    signature.name: signature
    for signature in (
        _aggregate("sum", total, "same"), _aggregate("mean", mean, "float"), _aggregate("min", min, "same"),
        _aggregate("max", max, "same"), _aggregate("range", spread, "same"), _aggregate("count", len, "int"),
        _aggregate("any", any, "bool", conditions=True), _aggregate("all", all, "bool", conditions=True),
        Signature("abs", abs, "same"), Signature("round", round, "int"), Signature("floor", math.floor, "int"),
        Signature("ceil", math.ceil, "int"), Signature("sqrt", math.sqrt, "float"), Signature("exp", math.exp, "float"),
        Signature("log", math.log, "float"), Signature("log10", math.log10, "float"),
        Signature("sin", math.sin, "float"), Signature("cos", math.cos, "float"), Signature("tan", math.tan, "float"),
        Signature("atan2", math.atan2, "float", 2, 2), Signature("hypot", math.hypot, "float", 2, 2),
    )
}  # fmt: skip
