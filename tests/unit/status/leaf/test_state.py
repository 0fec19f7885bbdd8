"""The store of a leaf broker: the names in it are those of the first release, whatever the fields are called now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chappe.machine import Change
from chappe.status.leaf.state import PathSegment, encode, read
from chappe.wire.base import Grant, Variable
from chappe.wire.constants import MODES
from chappe.wire.management import Function, Input

VARIABLE = Variable(5, "plant", "power", "float", 1, 10_000_000, 3, 0)
GRANTS = (Grant(10_000_000, 1, 2_000_000, 1, 3),) * MODES
LEGS = [[7, ["a", "b"], 0, 65535, "", "x"]]
FUNCTION = Function(publisher="sums", variable="total", inputs=(Input("plant", "power"),), calculator="builtin:sum")

STORED: dict[str, dict[str, Any]] = {
    "publication": {"variable": VARIABLE, "edge": "a", "told": False},
    "subscription": {"key": "west/1", "entity": "viewer", "edge": "b", "publisher": "plant", "name": "power",
                     "variable": VARIABLE, "grants": GRANTS, "legs": LEGS, "state": "granted", "sought": True,
                     "held": ["float", [], 65535, GRANTS, LEGS]},
    "reservation": {"key": "east/1", "variable": VARIABLE, "grants": GRANTS, "legs": LEGS, "state": "laid"},
    "leftover": {"variable_id": 5, "path": 7, "routers": ["a", "b"]},
    "unflood": {"variable": VARIABLE, "routers": ["a"]},
    "function": {"function": FUNCTION, "creator": "viewer", "router": "a", "output": VARIABLE, "inputs": [VARIABLE],
                 "placed": True, "told": False},
}  # fmt: skip


@pytest.mark.parametrize("kind", STORED)
def test_an_item_of_the_first_release_is_read_and_written_under_the_same_names(kind: str) -> None:
    value = msgspec.msgpack.encode(STORED[kind])
    item = read([Change(kind, "k", value)])[kind]["k"]
    assert msgspec.msgpack.decode(encode(item)) == msgspec.msgpack.decode(value)


def test_stored_names_reach_the_fields_that_are_called_otherwise() -> None:
    changes = [Change(kind, "k", msgspec.msgpack.encode(value)) for kind, value in STORED.items()]
    found = {kind: items["k"] for kind, items in read(changes).items() if items}
    segments = (PathSegment(7, ("a", "b"), 0, 65535, "", "x"),)
    assert not found["publication"].announced
    assert not found["function"].inputs_confirmed
    subscription = found["subscription"]
    assert (subscription.segments, subscription.remote, subscription.held.segments) == (segments, True, segments)
    assert (found["reservation"].segments, found["reservation"].state) == (segments, "laid")
