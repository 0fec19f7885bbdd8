"""Rows of a listing, found step by step, and where a client is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chappe.security.rules import RuleBook

Row = dict[str, Any]
_END: Row = {}  # no row: compared by identity


@dataclass(slots=True)
class Rows:
    """The rows of one listing, found step by step; a step that yields None has looked at something and found no row."""

    steps: Iterator[Row | None]
    size: int = 0  # how many there are, where that is known before
    position: int = 0  # rows found so far
    over: bool = False  # there are no more

    @property
    def total(self) -> int:
        """How many there are in all; while that is not known, one more than were found."""
        return self.position if self.over else max(self.size, self.position + 1)

    def find(self, start: int, limit: int, found: list[Row]) -> Iterator[None]:
        """Append the rows from there on, at most so many, step by step."""
        while len(found) < limit and not self.over:
            row = next(self.steps, _END)
            if row is _END:
                self.over = True
            elif row is not None:
                self.position += 1
                if self.position > start:
                    found.append(row)
            yield


@dataclass(slots=True)
class Cursor:
    """Where a listing of a client goes on if it asks for the rows that follow; one a connection."""

    question: tuple[Any, ...]
    rows: Rows
    book: RuleBook  # by which rows were chosen
