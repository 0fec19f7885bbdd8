"""Addresses of nodes and inboxes as text: what is one, what is none, and what people see of them."""

from __future__ import annotations

import pytest

from chappe.engine._topics import TopicError, TopicTable, check_topic
from chappe.errors import ProtocolError
from chappe.wire.addresses import check_address, confirm_address, inbox_address, node_of, purpose, redacted
from chappe.wire.dump import describe
from chappe.wire.events import Event, Topic, TopicName

ID = bytes(range(16))
GOOD = ["n7", "east/hall/n7", inbox_address("east/n7", ID), confirm_address("n7", ID), "été/n", "/".join("x" * 64)]
BAD = [
    "", "/", "a/", "/a", "a//b", "a@", "@", f"@{ID.hex()}", f"a/@{ID.hex()}", f"a@{ID.hex()}0", f"a@{ID.hex()[1:]}",
    f"a@{ID.hex().upper()}", f"a@confirm:{ID.hex()[1:]}", f"a@confirm{ID.hex()}", f"a@b@{ID.hex()}", "a/+", "#", "a\0b",
    f"a@{ID.hex()}/b", "x" * 1025, "/".join("x" * 65), f"a@g{ID.hex()[1:]}",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_addresses(text: str) -> None:
    check_address(text)
    check_topic(text.encode(), "n")
    assert TopicName.decode(TopicName(text, "n").encode()) == TopicName(text, "n")


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_address_is_refused_by_both_implementations(text: str) -> None:
    with pytest.raises(ProtocolError):
        check_address(text)
    with pytest.raises(TopicError):
        check_topic(text.encode(), "n")


def test_bytes_that_are_no_text_are_no_address() -> None:
    with pytest.raises(TopicError):
        check_topic(b"a\xff", "n")
    with pytest.raises(ProtocolError):
        TopicName.decode(b"n\0a\xff")


def test_parts_of_an_address() -> None:
    assert [purpose(text) for text in GOOD[:4]] == ["node", "node", "inbox", "confirm"]
    assert node_of(GOOD[2]) == "east/n7"
    assert redacted(GOOD[2]) == "east/n7@…"
    assert redacted("east/n7") == "east/n7"


def test_nobody_is_shown_the_id_of_an_inbox() -> None:
    address = TopicName(inbox_address("n7", ID), "n")
    texts = [repr(address), str(describe(Topic(1, address))), str(describe(Event(1, 1, reply=address)))]
    with pytest.raises(ProtocolError) as refused:
        check_address(f"n7@{ID.hex()}x")
    with pytest.raises(TopicError) as also:
        check_topic(f"n7@{ID.hex()}x".encode(), "n")
    for text in [*texts, str(refused.value), str(also.value)]:
        assert "n7@…" in text
        assert ID.hex() not in text


def test_wildcards_never_match_an_address() -> None:
    table = TopicTable()
    for pattern in ("#", "+", "n7/#", f"n7@{ID.hex()}"):
        table.subscribe(1, pattern)
    assert table.match(inbox_address("n7", ID), "n") == ([], {})
    for pattern in ("#", "n7/#", "+"):
        with pytest.raises(TopicError):
            table.subscribe(1, pattern, "n")


def test_a_neighbour_gets_what_has_its_name_and_nobody_gets_what_is_for_this_node() -> None:
    table = TopicTable()
    table.place("east/here")
    table.subscribe(1, "near@", "n")
    table.subscribe(2, "@", "n")
    table.subscribe(3, inbox_address("east/here", ID), "n")
    assert table.match(inbox_address("near", ID), "n")[0] == [1]
    assert table.match(inbox_address("west/near", ID), "n")[0] == [1]
    assert table.match("far", "n")[0] == [2]
    assert table.match(inbox_address("east/here", ID), "n")[0] == [3]
    assert table.match(inbox_address("east/here", bytes(16)), "n")[0] == []
    assert table.match("east/here", "n")[0] == []
    assert table.patterns(1) == [("near@", "n", "", False)]
