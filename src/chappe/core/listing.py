"""Listings of clients as jobs: looked up step by step, answered page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.core.outputs import Output, Send
from chappe.core.registrations import failed
from chappe.errors import DeniedError, RefusedError
from chappe.wire.control import List, Listing

if TYPE_CHECKING:
    from chappe.core.session import Session
    from chappe.security.rules import RuleBook

MAX_ROWS = 500  # of one answer: it is encoded in one go
Row = dict[str, Any]
_END: Row = {}  # no row: compared by identity
Find = Callable[[List, "Session"], "Rows"]


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


def listing(
    find: Find, book: RuleBook, session: Session, request: List, denied: Callable[[], None]
) -> Iterator[list[Output]]:
    """What to do about it, step by step; most steps find nothing to send. `denied` is called if it is not allowed."""
    start, limit = max(0, request.start), max(0, min(request.limit, MAX_ROWS))
    question = msgspec.structs.astuple(msgspec.structs.replace(request, id=0, start=0, limit=0))
    cursor, session.cursor = session.cursor, None
    if cursor is None or (cursor.question, cursor.rows.position, cursor.book) != (question, start, book) or not start:
        try:
            cursor = Cursor(question, find(request, session), book)
        except DeniedError as error:
            denied()
            yield [failed(session.port, request, "denied", str(error))]
            return
        except RefusedError as error:
            yield [failed(session.port, request, "unavailable", str(error))]
            return
        except KeyError as error:
            yield [failed(session.port, request, "invalid", str(error.args[0]))]
            return
    found: list[Row] = []
    for _ in cursor.rows.find(start, limit, found):
        yield []
    session.cursor = cursor
    yield [Send(session.port, Listing(id=request.id, rows=tuple(found), total=cursor.rows.total))]
