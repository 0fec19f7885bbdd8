"""Shortcuts for floods of registrations and watches decide as the long way does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.core import requests
from chappe.security.config import Rule
from chappe.security.rules import RuleBook
from chappe.wire import control
from tests.unit.core.control_table import Table

PIECES = ["a", "/", "+", "#", ":", "int", "str", "long", "é", "\ud800", "\n", "x" * 64]
names = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(publisher=names, variable=names)
def test_a_plain_name_is_judged_as_any_other(publisher: str, variable: str) -> None:
    request = control.Watch(id=1, publisher=publisher, variable=variable)
    short = requests.bad_watch(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "SHORT", -1)
        assert short == requests.bad_watch(request)


def test_a_right_to_everything_ends_with_the_book_that_gave_it() -> None:
    table = Table()
    table.client("pmu")
    assert isinstance(table.ask("pmu", control.Register, publisher="pmu", variable="a"), control.Registered)
    assert isinstance(table.ask("pmu", control.Watch, publisher="pmu", variable="a"), control.Watching)
    table.core.access.book = RuleBook.of([Rule("register", "pmu/b")], built_in=())
    refused = table.ask("pmu", control.Register, publisher="pmu", variable="c")
    assert isinstance(refused, control.Failed)
    assert refused.code == "denied"
    assert isinstance(table.ask("pmu", control.Register, publisher="pmu", variable="b"), control.Registered)
    assert isinstance(table.ask("pmu", control.Watch, publisher="pmu", variable="a"), control.Failed)


def test_a_refused_flood_is_counted_message_by_message() -> None:
    table = Table()
    table.client("pmu")
    table.core.access.book = RuleBook.of([], built_in=())
    for number in range(3):
        table.ask("pmu", control.Register, publisher="pmu", variable=f"v{number}")
    assert table.core.access.refused == 3
