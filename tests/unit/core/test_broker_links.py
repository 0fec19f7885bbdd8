from __future__ import annotations

import pytest

from chappe.core.broker.links import Led, Links, Parents, is_process_of
from chappe.core.session import Session
from chappe.security.identity import dev_identity
from chappe.wire.base import Done
from chappe.wire.management import Child


def session(port: int, name: str = "n") -> Session:
    return Session(port, name, "node", dev_identity(name, "node"))


def greeting(epoch: int = 1) -> Child:
    return Child(id=1, role="west", epoch=epoch, mode=0, issuer=b"")


@pytest.mark.parametrize(
    ("role", "name", "may"),
    [("west", "west", True), ("west", "west-1", True), ("west", "west-12", True), ("west", "west-a", False),
     ("west", "westward", False), ("west", "east-1", False), ("w.st", "west", False), ("west", "west-1\n", False)],
)  # fmt: skip
def test_a_process_is_named_after_its_role(role: str, name: str, may: bool) -> None:
    assert is_process_of(role, name) is may


def test_an_address_has_one_connection_and_a_connection_one_address() -> None:
    links, one, two = Links(), session(1), session(2)
    assert links.bind("child/west", one)
    assert not links.bind("child/west", one)
    assert links.bind("child/west", two)
    assert links.address(one) is None
    assert links.session("child/west") is two
    assert links.bind("child/east", two)
    assert list(links) == ["child/east"]
    assert links.release(two) == "child/east"
    assert links.release(two) is None


def test_an_old_process_of_a_child_does_not_replace_the_new_one() -> None:
    links, old, new = Links(), session(1), session(2)
    assert not links.outranks("child/west", new, 5)
    links.bind("child/west", new)
    links.at("child/west", 5)
    assert links.outranks("child/west", old, 4)
    assert not links.outranks("child/west", new, 4)
    assert not links.outranks("child/west", old, 6)
    links.release(new)
    assert not links.outranks("child/west", old, 4)  # nobody else is there


def test_until_a_parent_leads_everything_goes_to_all() -> None:
    parents, one, two = Parents(), session(1), session(2)
    assert parents.opened(one) is None
    assert parents.addressed(greeting()) == [1]
    assert parents.opened(two) == greeting()
    assert parents.addressed(Done(id=1)) == [1, 2]
    assert parents.leads(two, 3) is Led.ANSWER
    assert parents.addressed(Done(id=1)) == [2]
    assert parents.addressed(greeting()) == [1, 2]
    assert parents.is_led_by(two)


def test_a_parent_that_begins_to_lead_must_be_greeted_again() -> None:
    parents, one, two = Parents(), session(1), session(2)
    parents.opened(one)
    parents.opened(two)
    parents.addressed(greeting())
    assert parents.leads(one, 3) is Led.ANSWER
    assert parents.leads(one, 3) is Led.ANSWER  # said twice
    assert not parents.stands_by(two)
    assert parents.leads(two, 4) is Led.ANEW
    assert parents.leads(one, 3) is Led.NO  # it was paused
    parents.addressed(greeting())
    assert parents.leads(two, 4) is Led.ANSWER
    assert parents.is_led_by(two)


def test_a_parent_that_leaves_is_missed_and_another_connection_is_not() -> None:
    parents, one, two = Parents(), session(1), session(2)
    parents.opened(one)
    parents.opened(two)
    parents.addressed(greeting())
    parents.leads(one, 3)
    assert not parents.closed(two)
    parents.opened(two)
    assert parents.closed(one)
    assert parents.addressed(Done(id=1)) == [2]
    assert parents.closed(two)
    assert not parents
