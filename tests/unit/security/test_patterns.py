"""Containment and overlap of address patterns against brute force over all short topics."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.security.patterns import AddressPattern, PatternError, cell_address, topic_address, variable_address

# Patterns are made of `a` and `b`; `z` stands for every level that no pattern names. One level more than the longest
# pattern stands for every longer topic.
LONGEST = 3
TOPICS = [topic for length in range(1, LONGEST + 2) for topic in product("abz", repeat=length)]

HEADS = [head for length in range(LONGEST + 1) for head in product("ab+", repeat=length)]
PATTERNS = ["/".join(head) for head in HEADS if head] + [
    "/".join([*head, "#"]) for head in HEADS if len(head) < LONGEST
]


def matches(pattern: str, topic: tuple[str, ...]) -> bool:
    """The definition: `+` one level, `#` the rest and the parent."""
    parts = pattern.split("/")
    if parts[-1] == "#":
        parts.pop()
        if len(topic) < len(parts):
            return False
        topic = topic[: len(parts)]
    return len(parts) == len(topic) and all(part in ("+", level) for part, level in zip(parts, topic, strict=True))


def language(pattern: str) -> set[tuple[str, ...]]:
    return {topic for topic in TOPICS if matches(pattern, topic)}


LANGUAGES = {pattern: language(pattern) for pattern in PATTERNS}


def test_one_pattern_covers_another_exactly_if_it_matches_all_its_topics() -> None:
    wrong = [
        (wide, narrow)
        for wide, narrow in product(PATTERNS, PATTERNS)
        if AddressPattern.address(wide).covers(AddressPattern.address(narrow)) != (LANGUAGES[wide] >= LANGUAGES[narrow])
    ]
    assert wrong == []


def test_two_patterns_overlap_exactly_if_some_topic_matches_both() -> None:
    wrong = [
        (one, two)
        for one, two in product(PATTERNS, PATTERNS)
        if AddressPattern.address(one).overlaps(AddressPattern.address(two)) != bool(LANGUAGES[one] & LANGUAGES[two])
    ]
    assert wrong == []


segments = st.lists(st.sampled_from(["a", "b", "c", "+"]), max_size=12)


@given(segments, segments, st.booleans(), st.booleans(), st.lists(st.sampled_from("abcz"), min_size=1, max_size=13))
def test_covering_and_meeting_agree_with_any_long_topic(
    one: list[str], two: list[str], one_open: bool, two_open: bool, topic: list[str]
) -> None:
    left, right = (
        "/".join([*parts, "#"] if rest or not parts else parts) for parts, rest in ((one, one_open), (two, two_open))
    )
    in_left, in_right = matches(left, tuple(topic)), matches(right, tuple(topic))
    if AddressPattern.address(left).covers(AddressPattern.address(right)):
        assert in_left or not in_right
    if in_left and in_right:
        assert AddressPattern.address(left).overlaps(AddressPattern.address(right))
    assert AddressPattern.address(left).covers(AddressPattern.address("/".join(topic))) == in_left


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("int:42", "int:42", True),
        ("int:42", "int:43", False),
        ("int:#", "int:-7", True),
        ("int:#", "long:7", False),
        ("#", "long:7", True),
        ("#", "grid/west", True),
        ("+/#", "int:42", False),
        ("int:42", "str:int:42", False),
        ("+", "str:int:42", True),
        ("int:#", "str:int:42", False),
    ],
)
def test_typed_topics_are_spaces_of_their_own(wide: str, narrow: str, covered: bool) -> None:
    assert AddressPattern.rule(wide).covers(AddressPattern.address(narrow)) is covered
    assert AddressPattern.rule(wide).overlaps(AddressPattern.address(narrow)) is covered


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("a//b", "empty level"),
        ("/a", "empty level"),
        ("a/", "empty level"),
        ("a/#/b", "last level"),
        ("a/b+", "whole levels"),
        ("a#", "whole levels"),
        ("x" * 1025, "1024 bytes"),
        ("int:4x", "integer"),
        ("int:2147483648", "32-bit"),
        ("int:007", "integer"),
        ("long:9223372036854775808", "64-bit"),
        ("int:", "integer"),
        ("str:", "empty"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        AddressPattern.rule(text)


def test_addresses_of_the_wire_never_collide() -> None:
    assert topic_address("i", "42") == "int:42"
    assert topic_address("l", "-1") == "long:-1"
    assert topic_address("s", "grid/west") == "grid/west"
    assert topic_address("s", "int:42") == "str:int:42"
    assert AddressPattern.address(topic_address("s", "str:x")).levels == ("str:x",)
    assert variable_address("pmu-1", "bus/volts") == "pmu-1/bus/volts"
    assert AddressPattern.address(variable_address("int:1", "v")).levels == ("int:1", "v")
    with pytest.raises(PatternError, match="single level"):
        variable_address("a/b", "c")


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("cell:fr.#", "cell:fr.paris.louvre", True),
        ("cell:fr.#", "cell:fr", True),
        ("cell:fr.+", "cell:fr.paris.louvre", False),
        ("cell:fr.paris/#", "cell:fr.paris/louvre", False),  # dots separate the levels of names, nothing else does
        ("cell:#", "cell:C++", True),
        ("cell:#", "cell:a..b", True),
        ("#", "cell:fr.paris", True),
        ("fr/#", "cell:fr.paris", False),
        ("cell:#", "fr.paris", False),
    ],
)
def test_names_of_cells_have_levels_that_dots_separate(pattern: str, name: str, covered: bool) -> None:
    assert AddressPattern.rule(pattern).covers(AddressPattern.address(name)) is covered


def test_the_own_name_in_a_pattern_of_cells_has_levels_too() -> None:
    own = AddressPattern.rule("cell:{name}.#").with_name("fr.louvre")
    assert own.covers(AddressPattern.address("cell:fr.louvre.disk"))


@pytest.mark.parametrize(
    ("destination", "address"),
    [("fr.paris", "cell:fr.paris"), ("fr.*", "cell:fr.#"), ("fr.lou*", "cell:fr.#"), ("f*", "cell:#"), ("*", "cell:#")],
)
def test_a_prefix_of_names_is_asked_for_as_the_least_pattern_that_has_them_all(destination: str, address: str) -> None:
    assert cell_address(destination) == address


def test_a_topic_that_looks_like_a_name_of_a_cell_is_none() -> None:
    assert topic_address("s", "cell:fr.paris") == "str:cell:fr.paris"
    assert topic_address("c", "fr.paris") == "cell:fr.paris"
    with pytest.raises(PatternError, match="last level"):
        AddressPattern.rule("cell:#.paris")
