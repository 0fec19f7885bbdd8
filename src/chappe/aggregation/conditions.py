"""Conditions on metrics: comparisons with numbers, joined by `and` and `or`; no arithmetic (MR-099, MR-100)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from chappe.errors import ConfigError
from chappe.measure.record import METRICS

KNOWN = (*METRICS, "interval_ms", "age_s")  # age_s: since the link was last heard of
TOKENS, DEPTH = 64, 8
_TOKEN = re.compile(r"\s*(?:(<=|>=|<|>)|([()])|([A-Za-z_]\w*)|([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?))")


class Comparison(NamedTuple):
    """A metric above or below a bound."""

    metric: str
    operator: str
    bound: float


class Joined(NamedTuple):
    """Several conditions of which all, or any, must hold."""

    word: str  # and, or
    parts: tuple[Condition, ...]


Condition = Comparison | Joined


def parse(text: str) -> Condition:
    """The condition of a text like `latency_ms > 80 and (loss > 0.01 or jitter_ms > 5)`; ConfigError says where not."""
    return _Reader(text).read()


def holds(condition: Condition, values: Mapping[str, float | None], margin: float = 0.0) -> bool | None:
    """Whether it holds; None if that depends on something that is not known.

    margin: every bound is moved by this share of it, so that the condition holds more easily (hysteresis).
    """
    if isinstance(condition, Comparison):
        return _compared(condition, values, margin)
    answers = [holds(part, values, margin) for part in condition.parts]
    decisive = condition.word == "or"  # one True decides an `or`, one False an `and`
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


def metrics(condition: Condition) -> set[str]:
    """All metrics that it looks at."""
    if isinstance(condition, Comparison):
        return {condition.metric}
    return set().union(*(metrics(part) for part in condition.parts))


def sql(condition: Condition) -> str:
    """The same as SQL over the columns of a record; age_s has none."""
    if isinstance(condition, Comparison):
        if condition.metric == "age_s":
            raise ConfigError("age_s: is no column of a record; use it in alert rules only")
        return f"{condition.metric} {condition.operator} {condition.bound!r}"
    return "(" + f" {condition.word} ".join(sql(part) for part in condition.parts) + ")"


def _compared(condition: Comparison, values: Mapping[str, float | None], margin: float) -> bool | None:
    value = values.get(condition.metric)
    if value is None:
        return None
    moved = abs(condition.bound) * margin
    match condition.operator:
        case ">":
            return value > condition.bound - moved
        case ">=":
            return value >= condition.bound - moved
        case "<":
            return value < condition.bound + moved
    return value <= condition.bound + moved


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0

    def read(self) -> Condition:
        condition = self._joined(0)
        if self._at < len(self._tokens):
            raise self._error(f"{self._tokens[self._at]!r} does not belong there; join comparisons with and, or")
        return condition

    def _joined(self, depth: int) -> Condition:
        """`or` binds less than `and`."""
        return self._sequence("or", lambda: self._sequence("and", lambda: self._single(depth)))

    def _sequence(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._next() == word:
            self._at += 1
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _single(self, depth: int) -> Condition:
        token = self._take("a metric")
        if token == "(":
            if depth >= DEPTH:
                raise self._error(f"parentheses are nested deeper than {DEPTH}")
            inside = self._joined(depth + 1)
            if self._take("a closing parenthesis") != ")":
                raise self._error("a closing parenthesis is missing")
            return inside
        if token not in KNOWN:
            raise self._error(f"{token!r} is no metric; known are {', '.join(KNOWN)}")
        operator = self._take("one of < <= > >=")
        if operator not in ("<", "<=", ">", ">="):
            raise self._error(f"{operator!r} is none of < <= > >=")
        bound = self._take("a number")
        try:
            return Comparison(token, operator, float(bound))
        except ValueError:
            raise self._error(f"{bound!r} is no number; a metric is compared with a number") from None

    def _next(self) -> str:
        return self._tokens[self._at].lower() if self._at < len(self._tokens) else ""

    def _take(self, wanted: str) -> str:
        if self._at >= len(self._tokens):
            raise self._error(f"it ends where {wanted} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def _split(self) -> list[str]:
        tokens, place, text = [], 0, self._text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._error(f"{text[place:].strip()[:20]!r} cannot be read; there is no arithmetic here")
            tokens.append(found[0].strip())
            place = found.end()
            if len(tokens) > TOKENS:
                raise self._error(f"has more than {TOKENS} words")
        return tokens

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"condition {self._text[:80]!r}: {reason}")
