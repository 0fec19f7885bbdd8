"""Laws of patterns, against the engine's own topic table: a summary may want too much, never too little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.engine._topics import TopicTable
from chappe.events.interest import Pattern, Subscriptions
from chappe.wire.patterns import (
    ALL,
    MAX_FILTERS,
    MAX_GROUPED,
    MAX_TEXT,
    Cover,
    canonical,
    covers,
    matches,
    overlaps,
    summarise,
)

LEVELS = st.sampled_from(["a", "b", "c"])
TEXTS = st.builds(
    lambda levels, rest: "/".join(levels + rest),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3),
    st.sampled_from([[], [], ["#"]]),
) | st.sampled_from(["#", "a/#", "+/#", "+", "a/b"])
NUMBERS = st.tuples(st.sampled_from("il"), st.integers(-2, 2).map(str))
STRINGS = st.tuples(st.just("s"), TEXTS)
GROUPS = st.sampled_from(["", "", "g", "h"])
FILTERS = st.sampled_from([(), (), ("x>1",), ("y=2",), ("x>1", "y=2")])
PATTERNS = st.builds(lambda key, group, filters: Pattern(*key, group, filters), STRINGS | NUMBERS, GROUPS, FILTERS)
TOPICS = st.tuples(st.just("s"), st.lists(LEVELS, min_size=1, max_size=4).map("/".join)) | NUMBERS


def as_frame(kind: str, text: str) -> bytes:
    return text.encode() if kind == "s" else int(text).to_bytes(4 if kind == "i" else 8, "big", signed=True)


def wanted(patterns: tuple[Pattern, ...], kind: str, text: str, group: str) -> bool:
    return any(p.group == group and matches(p, kind, as_frame(kind, text)) for p in patterns)


@pytest.mark.spec("MR-134")
@given(PATTERNS, TOPICS)
def test_a_pattern_matches_what_the_engine_matches(pattern: Pattern, topic: tuple[str, str]) -> None:
    table = TopicTable()
    table.subscribe(7, pattern.text, pattern.kind, pattern.group)
    ports, groups = table.match(topic[1], topic[0])
    found = groups.get(pattern.group, []) if pattern.group else ports
    assert matches(pattern, topic[0], as_frame(*topic)) is (found == [7])


@given(PATTERNS, PATTERNS, TOPICS)
def test_what_is_covered_is_matched(a: Pattern, b: Pattern, topic: tuple[str, str]) -> None:
    frame = as_frame(*topic)
    if covers(a, b) and matches(b, topic[0], frame):
        assert matches(a, topic[0], frame)


@given(STRINGS, STRINGS)
def test_what_is_not_covered_has_a_topic_of_its_own(a: tuple[str, str], b: tuple[str, str]) -> None:
    """`covers` is exact: if it says no, one of three topics tells the two patterns apart."""
    one, other = Pattern(*a), Pattern(*b)
    fresh = ["z" if level == "+" else level for level in b[1].split("/")]
    ends = (["z", "z", "z", "z"], ["z"], []) if fresh[-1] == ALL else ([fresh[-1]],)
    topics = ["/".join([*fresh[:-1], *end]) for end in ends]
    apart = any(t and matches(other, "s", t.encode()) and not matches(one, "s", t.encode()) for t in topics)
    assert covers(one, other) is not apart


@given(PATTERNS, PATTERNS, st.lists(TOPICS, max_size=20))
def test_patterns_that_share_a_topic_overlap(a: Pattern, b: Pattern, topics: list[tuple[str, str]]) -> None:
    shared = any(matches(a, k, as_frame(k, t)) and matches(b, k, as_frame(k, t)) for k, t in topics)
    assert overlaps(a, b) == overlaps(b, a)
    assert overlaps(a, b) or not shared
    if covers(a, b):
        assert overlaps(a, b)


@given(st.lists(PATTERNS, max_size=12), st.integers(1, 12), st.lists(TOPICS, min_size=1, max_size=8))
def test_a_summary_never_wants_too_little(patterns: list[Pattern], limit: int, topics: list[tuple[str, str]]) -> None:
    told = summarise(patterns, limit)
    for kind, text in topics:
        for group in ("", "g", "h"):
            if wanted(tuple(patterns), kind, text, group):
                assert wanted(told, kind, text, group)
    assert len([p for p in told if not p.group]) <= max(limit, len({p.kind for p in patterns}))
    assert told == summarise(reversed(patterns), limit)
    assert not any(covers(a, b) for a in told for b in told if a is not b)


@given(st.lists(PATTERNS, max_size=12), st.lists(TOPICS, min_size=1, max_size=8))
def test_a_summary_that_fits_wants_the_same(patterns: list[Pattern], topics: list[tuple[str, str]]) -> None:
    told = summarise(patterns, 100)
    for kind, text in topics:
        for group in ("", "g", "h"):
            assert wanted(told, kind, text, group) == wanted(tuple(patterns), kind, text, group)


@given(st.lists(PATTERNS, max_size=12), st.integers(1, 6), st.lists(TOPICS, min_size=1, max_size=8))
def test_a_summary_is_exact_about_groups(patterns: list[Pattern], limit: int, topics: list[tuple[str, str]]) -> None:
    told = summarise(patterns, limit)
    for kind, text in topics:
        for group in ("g", "h"):
            assert wanted(told, kind, text, group) == wanted(tuple(patterns), kind, text, group)


def test_a_summary_fits_a_message() -> None:
    long = [Pattern("s", f"{'x' * 500}/{'y' * 500}{n}") for n in range(3000)]
    told = summarise(long, 4096)
    assert sum(len(p.text) for p in told) <= MAX_TEXT
    assert all(any(covers(wide, p) for wide in told) for p in long[::100])
    many = [Pattern("s", "t/1", f"{n:0>255}") for n in range(3000)]
    assert {p.group for p in summarise(many, 4096)} == {p.group for p in many}  # each group keeps its one


def test_too_many_patterns_of_groups_are_widened() -> None:
    many = [Pattern("s", f"t/{n}", "g") for n in range(MAX_GROUPED + 1)]
    assert summarise(many[:-1], 4) == tuple(sorted(many[:-1]))
    assert summarise(many, 4) == (Pattern("s", "t/#", "g"),)


@given(st.lists(PATTERNS, max_size=12), st.integers(1, 6))
def test_filters_are_carried_as_a_disjunction(patterns: list[Pattern], limit: int) -> None:
    """Each pattern is inside one of the summary that has no filters, or all of its own."""
    for pattern in patterns:
        assert any(covers(told, pattern) for told in summarise(patterns, limit))


def test_too_many_filters_are_given_up() -> None:
    many = [Pattern("s", "a", "", (f"x>{n}",)) for n in range(MAX_FILTERS + 1)]
    assert summarise(many[:MAX_FILTERS], 10)[0].filters == tuple(f"x>{n}" for n in range(MAX_FILTERS))
    assert summarise(many, 10) == (Pattern("s", "a"),)


def settled(mine: Subscriptions) -> tuple[Pattern, ...]:
    """What is told once all work is done."""
    while mine.due:
        mine.work()
    return mine.patterns()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), PATTERNS), max_size=30),
    st.integers(2, 8),
    st.lists(TOPICS, min_size=1, max_size=6),
)
def test_counted_subscriptions_tell_enough(
    calls: list[tuple[bool, Pattern]], limit: int, topics: list[tuple[str, str]]
) -> None:
    """Whatever comes and goes: what is told wants all that is wanted, and a call says if it must be told anew."""
    mine = Subscriptions(limit)
    held: list[Pattern] = []
    told = mine.patterns()
    for add, pattern in calls:
        if add:
            changed = mine.add(*pattern)
            held.append(pattern)
        elif pattern in held:
            changed = mine.remove(*pattern)
            held.remove(pattern)
        else:
            with pytest.raises(KeyError):
                mine.remove(*pattern)
            changed = False
        assert all(wanted(mine.patterns(), p.kind, t, p.group) for p in held for k, t in topics if k == p.kind
                   and matches(p, k, as_frame(k, t)))  # fmt: skip
        if changed:
            told = settled(mine)
        assert settled(mine) == told
        plain = [p for p in told if not p.group]
        assert len(plain) <= max(limit, len({p.kind for p in plain}))  # each type of topic keeps one
        for kind, text in topics:
            frame = as_frame(kind, text)
            here = mine.wants(kind, frame)
            assert here.plain == any(not p.group and matches(p, kind, frame) for p in held)
            assert set(here.groups) == {p.group for p in held if p.group and matches(p, kind, frame)}
            for group in ([""] if here.plain else []) + list(here.groups):
                assert wanted(told, kind, text, group)
    for pattern in held:
        mine.remove(*pattern)
    assert settled(mine) == ()
    assert len(mine) == 0


@given(st.lists(PATTERNS, max_size=8), PATTERNS)
def test_a_cover_finds_what_a_search_finds(patterns: list[Pattern], pattern: Pattern) -> None:
    unique = list({canonical(p): p for p in patterns}.values())
    assert Cover(unique).covers(pattern) == any(covers(p, pattern) for p in unique)
