from __future__ import annotations

import pytest

from chappe.core.broker.operators import Operators
from chappe.core.session import Session
from chappe.machine import Audit
from chappe.security.config import Rule
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook
from chappe.wire.base import Done, Failed, Request
from chappe.wire.management import AddRouter, ChangeMode, RemoveRouter, Withdrawn

RULES = (Rule("control", "west-1/ChangeMode", names=("ann",)), Rule("admin", "west-1/#", names=("bob",)))


def operator(name: str, port: int = 1) -> Session:
    return Session(port, name, "client", Identity(name=name, role="client", how="token"))


@pytest.fixture
def operators() -> Operators:
    book = RuleBook.of(RULES)
    return Operators("west-1", lambda: book)


@pytest.mark.parametrize(
    ("name", "request_", "action"),
    [
        ("ann", ChangeMode(id=7, mode=1), None),
        ("ann", AddRouter(id=7, name="r"), "admin"),
        ("bob", AddRouter(id=7, name="r"), None),
        ("bob", ChangeMode(id=7, mode=1), "control"),
        ("eve", RemoveRouter(id=7, name="r"), "admin"),
    ],
)
def test_a_request_needs_its_right(operators: Operators, name: str, request_: Request, action: str | None) -> None:
    refusal = operators.refusal(operator(name), request_)
    if action is None:
        assert refusal is None
        return
    assert refusal is not None
    assert (refusal.action, refusal.outcome) == (action, "denied")
    assert refusal.answer is not None
    answer = refusal.answer.message
    assert isinstance(answer, Failed)
    assert (answer.id, answer.code) == (7, "denied")
    assert "this one would" in answer.reason


def test_what_is_allowed_is_written_down_before_it_is_asked_for(operators: Operators) -> None:
    ann = operator("ann")
    first = operators.intend(ann, ChangeMode(id=7, mode=2))
    second = operators.intend(ann, ChangeMode(id=8, mode=2))
    assert (first.source, first.action, first.address, first.details) == (
        ann.port, "control", "west-1/ChangeMode", {"id": 7, "mode": 2, "rank": 0}
    )  # fmt: skip
    assert first.number != second.number
    assert operators.intended(second.number) == (ann, ChangeMode(id=8, mode=2))
    assert operators.intended(first.number) == (ann, ChangeMode(id=7, mode=2))


def test_each_answer_is_recorded_once_with_its_outcome(operators: Operators) -> None:
    ann = operator("ann")
    assert operators.asked(ann, ChangeMode(id=1, mode=2), 8) == "operator/1"
    operators.asked(ann, ChangeMode(id=2, mode=3), 9)
    record = operators.answer(ann, Done(id=1))
    assert isinstance(record, Audit)
    assert (record.address, record.outcome, record.number, record.details) == ("west-1/ChangeMode", "done", 8, {})
    failed = operators.answer(ann, Failed(id=2, code="stale", reason="replaced"))
    assert failed is not None
    assert (failed.outcome, failed.reason) == ("failed", "replaced")
    assert operators.answer(ann, Done(id=1)) is None
    assert operators.answer(ann, Withdrawn(variable_id=1, reason="")) is None


def test_what_is_under_way_at_the_end_is_answered(operators: Operators) -> None:
    ann, gone = operator("ann"), operator("ann", port=2)
    operators.asked(ann, ChangeMode(id=1, mode=2), 1)
    operators.asked(gone, ChangeMode(id=1, mode=2), 2)
    (unheard,) = operators.closed(gone)
    assert isinstance(unheard, Audit)
    assert (unheard.number, unheard.outcome, unheard.answer) == (2, "failed", None)
    (record,) = operators.abandon("another leads")
    assert isinstance(record, Audit)
    assert record.answer is not None
    assert record.answer.to == 1
    answer = record.answer.message
    assert isinstance(answer, Failed)
    assert (answer.id, answer.code) == (1, "unavailable")
    assert answer.reason == "it may have been done or not: another leads"
    assert operators.abandon("again") == []
