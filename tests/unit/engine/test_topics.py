"""Subscriptions of the topic table: what matches, what is one subscription, what is refused and how."""

from __future__ import annotations

import pytest

from chappe.engine._topics import TopicError, TopicTable, check_pattern, check_topic

MATCHES = [
    # pattern, topics it covers, topics it does not
    ("a", ["a"], ["b", "aa", "a/b"]),
    ("a/b", ["a/b"], ["a", "a/b/c", "b/a", "ab"]),
    ("+", ["a", "b"], ["a/b"]),
    ("+/b", ["a/b", "b/b"], ["b", "a/b/c", "a/c"]),
    ("a/+", ["a/b", "a/c"], ["a", "a/b/c", "b/b"]),
    ("a/+/c", ["a/b/c", "a/x/c"], ["a/c", "a/b/b/c", "a/b/d"]),
    ("+/+", ["a/b"], ["a", "a/b/c"]),
    ("#", ["a", "a/b", "a/b/c/d/e"], []),
    ("a/#", ["a", "a/b", "a/b/c"], ["b", "ab", "b/a", "ab/c"]),
    ("a/b/#", ["a/b", "a/b/c", "a/b/c/d"], ["a", "a/c"]),
    ("+/#", ["a", "a/b", "a/b/c"], []),
    ("+/b/#", ["a/b", "a/b/c", "c/b"], ["a", "b", "a/c/b"]),
    ("a/+/#", ["a/b", "a/b/c"], ["a", "b/b"]),
    ("PBR/PerformanceData/+/7", ["PBR/PerformanceData/3/7"], ["PBR/PerformanceData", "PBR/PerformanceData/3/8"]),
    ("größe/µ", ["größe/µ"], ["große/µ", "größe"]),
    ("a b/ ", ["a b/ "], ["a b", "a b/  "]),
]


@pytest.mark.spec("MR-134")
@pytest.mark.parametrize(("pattern", "covered", "others"), MATCHES)
def test_pattern_covers_exactly_these_topics(pattern: str, covered: list[str], others: list[str]) -> None:
    table = TopicTable()
    table.subscribe(1, pattern)
    assert [topic for topic in covered + others if table.match(topic) == ([1], {})] == covered
    assert [topic for topic in covered + others if table.route(table.number(topic))[1] == [1]] == covered


@pytest.mark.spec("NS-015")
def test_string_topics_reach_the_ports_that_named_them() -> None:
    table = TopicTable()
    table.subscribe(7, "Storage/Temperature")
    table.subscribe(3, "Storage/Temperature")
    table.subscribe(5, "Storage/Humidity")
    assert table.match("Storage/Temperature") == ([3, 7], {})
    assert table.match("Storage/Humidity") == ([5], {})
    assert table.match("storage/temperature") == ([], {})


@pytest.mark.spec("NS-016")
@pytest.mark.parametrize("key", [0, 1, -1, 2**31 - 1, -(2**31), 0x2B2F232F])
def test_integer_topics_match_by_value_alone(key: int) -> None:
    table = TopicTable()
    table.subscribe(1, str(key), "i")
    table.subscribe(2, "#")
    table.subscribe(3, str(key), "l")
    table.subscribe(4, "+")
    assert table.match(key, "i") == ([1], {})
    assert table.match(key ^ 1, "i") == ([], {})
    assert table.name(table.number(key, "i")) == ("i", key.to_bytes(4, "big", signed=True), "")


@pytest.mark.spec("NS-017")
@pytest.mark.parametrize("key", [0, -1, 2**31, 2**63 - 1, -(2**63)])
def test_long_topics_match_by_value_alone(key: int) -> None:
    table = TopicTable()
    table.subscribe(1, str(key), "l")
    table.subscribe(2, str(key))
    table.subscribe(3, "#")
    assert table.match(key, "l") == ([1], {})
    assert table.match(str(key), "l") == ([1], {})
    assert table.match(key ^ 1, "l") == ([], {})
    assert table.match(str(key)) == ([2, 3], {})


def test_a_port_is_named_once_however_many_of_its_patterns_match() -> None:
    table = TopicTable()
    for pattern in ("a/b", "a/+", "a/#", "#", "+/b"):
        assert table.subscribe(9, pattern, backpressure=pattern != "#")
        assert table.subscribe(9, pattern, group="g", backpressure=pattern != "#")
    assert table.match("a/b") == ([9], {"g": [9]})
    number = table.number("a/b")
    assert table.route(number)[1:] == ([9], [9], {"g": (number + 1, [9], [9])})
    assert table.subscriptions(9) == 10


def test_many_ports_come_sorted_and_unique() -> None:
    table = TopicTable()
    ports = [(i * 2654435761) % 2**32 for i in range(1000)]
    for port in ports:
        table.subscribe(port, "a")
        table.subscribe(port, "#", backpressure=port % 3 == 0)
    _, plain, back, groups = table.route(table.number("a"))
    assert plain == sorted(ports)
    assert back == sorted(port for port in ports if port % 3 == 0)
    assert groups == {}


def test_adding_twice_and_removing_twice_change_nothing() -> None:
    table = TopicTable()
    assert table.subscribe(1, "a/b") is True
    stamp = table.stamp
    assert table.subscribe(1, "a/b") is False
    assert table.stamp == stamp
    assert table.subscriptions() == 1
    assert table.unsubscribe(1, "a/b") is True
    assert table.stamp != stamp
    stamp = table.stamp
    assert table.unsubscribe(1, "a/b") is False
    assert table.unsubscribe(1, "never/seen", group="nobody") is False
    assert table.stamp == stamp
    assert table.subscriptions() == 0


def test_backpressure_is_updated_in_place() -> None:
    table = TopicTable()
    number = table.number("a")
    table.subscribe(1, "a")
    table.subscribe(2, "a", backpressure=True)
    table.subscribe(1, "+")
    assert table.route(number)[1:3] == ([1, 2], [2])
    assert table.subscribe(1, "+", backpressure=True) is False
    assert table.route(number)[1:3] == ([1, 2], [1, 2])
    assert table.subscribe(2, "a", backpressure=False) is False
    assert table.route(number)[1:3] == ([1, 2], [1])


def test_group_members_are_the_union_over_matching_patterns() -> None:
    table = TopicTable()
    table.subscribe(5, "a/+", group="workers")
    table.subscribe(4, "a/b", group="workers", backpressure=True)
    table.subscribe(4, "#", group="workers")
    table.subscribe(6, "x", group="workers")
    table.subscribe(4, "a/b", group="audit")
    table.subscribe(4, "a/b")
    assert table.match("a/b") == ([4], {"workers": [4, 5], "audit": [4]})
    _, plain, back, groups = table.route(table.number("a/b"))
    assert (plain, back) == ([4], [])
    assert {name: group[1:] for name, group in groups.items()} == {"workers": ([4, 5], [4]), "audit": ([4], [])}
    assert {name: table.name(group[0]) for name, group in groups.items()} == {
        "workers": ("s", b"a/b", "workers"),
        "audit": ("s", b"a/b", "audit"),
    }
    named = [group for port in (4, 5, 6) for _, _, group, _ in table.patterns(port) if group]
    assert sorted(named) == ["audit", *["workers"] * 4]


def test_a_group_ends_with_its_last_subscription() -> None:
    table = TopicTable()
    table.subscribe(1, "a", group="g")
    table.subscribe(1, "a")
    assert table.unsubscribe(1, "a", group="g")
    assert table.patterns(1) == [("a", "s", "", False)]
    assert table.match("a") == ([1], {})


def test_removing_prunes_the_trie() -> None:
    table = TopicTable()
    table.subscribe(1, "a/b/c/d")
    table.subscribe(1, "a/b/x")
    assert table.nodes() == 5
    table.unsubscribe(1, "a/b/c/d")
    assert table.nodes() == 3
    table.subscribe(2, "a")
    table.unsubscribe(1, "a/b/x")
    assert table.nodes() == 1
    table.unsubscribe(2, "a")
    assert table.nodes() == 0


def test_remove_port_works_in_slices_and_touches_no_other_port() -> None:
    table = TopicTable()
    for i in range(10):
        table.subscribe(1, f"a/{i}")
        table.subscribe(2, f"a/{i}", group="g")
    assert table.remove_port(1, 4) == 6
    assert table.subscriptions(1) == 6
    assert sum(table.match(f"a/{i}") == ([1], {"g": [2]}) for i in range(10)) == 6
    assert table.remove_port(1, 0) == 6
    assert table.remove_port(1, 100) == 0
    assert table.remove_port(1, 100) == 0
    assert table.match("a/3") == ([], {"g": [2]})
    assert (table.subscriptions(), table.subscriptions(1), table.subscriptions(2)) == (10, 0, 10)


def test_patterns_of_a_port_come_back_as_they_were_given() -> None:
    table = TopicTable()
    given = [("a/+/#", "s", "", True), ("-5", "i", "g", False), ("99", "l", "", False), ("ä/b", "s", "h", True)]
    for pattern, kind, group, backpressure in given:
        table.subscribe(1, pattern, kind, group, backpressure)
    table.subscribe(2, "other")
    assert sorted(table.patterns(1)) == sorted(given)
    assert table.patterns(3) == []


@pytest.mark.parametrize("depth", [1, 2, 63, 64])
def test_topics_may_have_up_to_64_levels(depth: int) -> None:
    table = TopicTable()
    topic = "/".join("x" * depth)
    table.subscribe(1, topic)
    table.subscribe(2, "/".join("+" * depth))
    table.subscribe(3, "/".join("x" * (depth - 1) + "#"))
    assert table.match(topic) == ([1, 2, 3], {})


def test_hostile_patterns_cost_one_visit_a_node() -> None:
    table = TopicTable()
    levels = 12
    for bits in range(2**levels):
        table.subscribe(bits, "/".join("+" if bits >> i & 1 else "x" for i in range(levels)))
    before = table.steps()
    ports, _ = table.match("/".join("x" * levels))
    assert len(ports) == 2**levels
    assert table.steps() - before < 20 * table.nodes()
    before = table.steps()
    assert table.match("/".join("y" * 64)) == ([], {})
    assert table.steps() - before < 500


BAD_TOPICS = [
    (b"", "is empty"),
    (b"a//b", "empty level"),
    (b"/a", "empty level"),
    (b"a/", "empty level"),
    (b"/", "empty level"),
    (b"a/+", "only subscriptions"),
    (b"a#", "only subscriptions"),
    (b"a\0b", "NUL"),
    (b"x" * 1025, "1024 bytes"),
    (b"/".join([b"a"] * 65), "64 levels"),
    (b"a/\xff", "UTF-8"),
    (b"\xc0\xaf", "UTF-8"),
    (b"\xed\xa0\x80", "UTF-8"),
    (b"\xf4\x90\x80\x80", "UTF-8"),
    (b"\xe2\x82", "UTF-8"),
]


@pytest.mark.parametrize(("topic", "reason"), BAD_TOPICS)
def test_bad_topics_are_refused_with_the_reason(topic: bytes, reason: str) -> None:
    with pytest.raises(TopicError, match=reason):
        check_topic(topic)


@pytest.mark.parametrize("topic", [b"a", b"x" * 1024, "ä/€/😀".encode(), b"/".join([b"a"] * 64), b" "])
def test_good_topics_pass(topic: bytes) -> None:
    check_topic(topic)
    assert TopicTable().number(topic.decode()) == 1


BAD_PATTERNS = [
    ("", "s", "is empty"),
    ("a//b", "s", "empty level"),
    ("a/b+", "s", "one whole level"),
    ("++/a", "s", "one whole level"),
    ("a/#/b", "s", "whole last level"),
    ("a#", "s", "whole last level"),
    ("##", "s", "whole last level"),
    ("+#", "s", "one whole level"),
    ("a\ud800", "s", "UTF-8"),
    ("a", "i", "whole number"),
    ("1.0", "i", "whole number"),
    ("", "l", "whole number"),
    ("+", "i", "whole number"),
    (str(2**31), "i", "2147483647"),
    (str(2**63), "l", "2\\^63"),
    ("1_0", "l", "whole number"),
    ("a", "x", "unknown kind"),
    ("a", "", "unknown kind"),
]


@pytest.mark.parametrize(("pattern", "kind", "reason"), BAD_PATTERNS)
def test_bad_patterns_are_refused_and_leave_no_trace(pattern: str, kind: str, reason: str) -> None:
    with pytest.raises(TopicError, match=reason):
        check_pattern(pattern, kind)
    table = TopicTable()
    with pytest.raises(TopicError, match=reason):
        table.subscribe(1, pattern, kind, "g")
    assert (table.subscriptions(), table.nodes(), table.patterns(1), table.stamp) == (0, 0, [], 1)


@pytest.mark.parametrize("group", ["g" * 256, "a\0b", "\ud800"])
def test_bad_group_names_are_refused(group: str) -> None:
    table = TopicTable()
    with pytest.raises(TopicError, match="group"):
        table.subscribe(1, "a", group=group)
    assert table.subscriptions() == 0


def test_a_long_bad_topic_is_not_repeated_whole_in_the_error() -> None:
    with pytest.raises(TopicError) as caught:
        check_topic(b"x" * 1_000_000)
    assert len(str(caught.value)) < 250
