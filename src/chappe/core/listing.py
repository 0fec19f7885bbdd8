"""Listings of clients as jobs: looked up step by step, answered page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from chappe.core.answers import failed
from chappe.core.cursor import Cursor, Row, Rows
from chappe.core.session import Session
from chappe.errors import DeniedError, RefusedError
from chappe.machine import Effect, Send
from chappe.security.rules import RuleBook
from chappe.wire.control import List, Listing

MAX_ROWS = 500  # of one answer: it is encoded in one go
Find = Callable[[List, Session], Rows]


def listing(
    find: Find, book: RuleBook, session: Session, request: List, denied: Callable[[], None]
) -> Iterator[list[Effect]]:
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
