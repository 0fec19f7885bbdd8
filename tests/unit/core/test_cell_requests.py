"""Who gets a name at a cell, and who may send to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chappe.core.access import Access
from chappe.core.cell_requests import CellRequests
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.errors import RefusedError
from chappe.machine import Send
from chappe.security.config import Rule
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.wire import control

RULES = (
    Rule("register", ("cell:fr.#", "cell:{name}")),
    Rule("publish", ("cell:fr.#", "cell:de.+")),
    Rule("publish", "cell:fr.secret.#", deny=True),
)


class Names:
    """What a machine of a cell does with names, of which it takes three at most."""

    def __init__(self) -> None:
        self.owned: dict[str, int] = {}

    def add_names(self, port: int, names: Sequence[str], owner: str) -> None:
        if len(self.owned) + len(names) > 3:
            raise RefusedError(f"{owner} has too many", "limit")
        self.owned |= dict.fromkeys(names, port)

    def remove_names(self, port: int, names: Sequence[str]) -> None:
        for name in names:
            if self.owned.get(name) != port:
                raise RefusedError(f"{name!r} is no name of this client", "unknown")
            del self.owned[name]


class Node:
    def __init__(self, *, cell: bool = True) -> None:
        self.sessions = Sessions()
        self.access = Access("n1", RuleBook.of(RULES), self.sessions)
        self.names = Names()
        self.requests = CellRequests("n1", self.names if cell else None, self.access)
        self.session = Session(1, "meter-7", "client", dev_identity("meter-7", "client"))
        self.sessions.open(self.session)

    def ask(self, **fields: Any) -> control.Message:
        (effect,) = self.requests.answers[control.OwnNames](self.session, control.OwnNames(id=5, **fields), 0)
        assert isinstance(effect, Send)
        assert effect.message.id == 5  # type: ignore[union-attr]
        return effect.message


@pytest.mark.spec("BF-04")
def test_names_are_added_and_removed_by_one_request() -> None:
    node = Node()
    assert isinstance(node.ask(add=("fr.paris", "fr.lyon")), control.Done)
    assert isinstance(node.ask(add=("meter-7",), remove=("fr.paris",)), control.Done)
    assert node.names.owned == {"fr.lyon": 1, "meter-7": 1}
    assert node.session.names == {"fr.lyon", "meter-7"}


@pytest.mark.parametrize("name", ["de.bonn", "frx", "meter-8", "fr.*", "*", "+", "#", ""])
def test_a_name_that_no_rule_allows_is_refused_and_counted(name: str) -> None:
    node = Node()
    answer = node.ask(add=("fr.paris", name))
    assert isinstance(answer, control.Failed)
    assert answer.code == "denied"
    assert node.names.owned == {}
    assert node.access.refused == 1


def test_a_refusal_names_the_rule_that_would_allow_it() -> None:
    answer = Node().ask(add=("de.bonn",))
    assert isinstance(answer, control.Failed)
    assert 'action = "register"\npattern = "cell:de.bonn"' in answer.reason


def test_what_the_cell_refuses_is_said_with_its_code() -> None:
    node = Node()
    assert isinstance(node.ask(add=("fr.a", "fr.b", "fr.c")), control.Done)
    limit, unknown = node.ask(add=("fr.d",)), node.ask(remove=("fr.z",))
    assert isinstance(limit, control.Failed)
    assert isinstance(unknown, control.Failed)
    assert (limit.code, unknown.code) == ("limit", "unknown")
    many = node.ask(add=tuple(f"fr.{number}" for number in range(2000)))
    assert isinstance(many, control.Failed)
    assert many.code == "invalid"


def test_a_node_that_is_no_cell_says_what_to_do() -> None:
    answer = Node(cell=False).ask(add=("fr.paris",))
    assert isinstance(answer, control.Failed)
    assert answer.code == "unsupported"
    assert "[cells]" in answer.reason


@pytest.mark.parametrize(
    ("destination", "allowed"),
    [
        ("fr.paris", True), ("fr", True), ("fr.a.b.c", True), ("de.bonn", True), ("de.bonn.west", False),
        ("fr.secret", False), ("fr.secret.x", False), ("it.rome", False), ("fr.paris/louvre", True),
        ("fr.*", False), ("fr.par*", False), ("*", False), ("fr.paris.*", True), ("fr.paris.lou*", True),
        ("fr..x", True), ("de.+", False),
    ],
)  # fmt: skip
def test_rules_say_to_which_names_somebody_sends(destination: str, allowed: bool) -> None:
    node = Node()
    assert node.access.authorize(1, "c", destination.encode()) is allowed
    denials = node.access.denials()
    assert [type(each.message) for each in denials if isinstance(each, Send)] == (
        [] if allowed else [control.PublishRefused]
    )


def test_a_destination_that_is_no_text_is_refused() -> None:
    assert not Node().access.authorize(1, "c", b"\xff\xfe")


def test_rules_that_changed_are_asked_again_about_names() -> None:
    node = Node()
    node.ask(add=("fr.paris",))

    class Engine:
        def defined_topics(self, port: int, start: int, limit: int) -> tuple[list[Any], int]:
            return [], 0

    assert not any(node.access.recheck(node.session, Engine()))  # type: ignore[arg-type]
    node.access.book = RuleBook.of(RULES[:1])
    assert not any(node.access.recheck(node.session, Engine()))  # type: ignore[arg-type]
    node.access.book = RuleBook.of(RULES[1:])
    assert any("may not register" in each for each in node.access.recheck(node.session, Engine()))  # type: ignore[arg-type]
