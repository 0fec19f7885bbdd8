"""Known names: what neighbours say about them, questions about their order, and what is forgotten first."""

from __future__ import annotations

from itertools import islice

import pytest

from chappe.cells.trie import Trie, TrieSettings
from chappe.wire.celladverts import Candidate, Entry

SECOND = 10**9
A, B, C, OWNER, OTHER = (bytes([number]) * 8 for number in range(5))
BEST = (Candidate(C, 5.0),)


def entry(name: str, cell: bytes = OWNER, stamp: int = 1, candidates: tuple[Candidate, ...] = BEST) -> Entry:
    return Entry(name, cell, stamp, candidates)


def trie_of(*names: str, settings: TrieSettings = TrieSettings(names=100)) -> Trie:  # noqa: B008
    trie = Trie(settings)
    for name in names:
        trie.insert(A, entry(name), 0)
    return trie


@pytest.mark.spec("BF-14")
def test_names_are_in_order_and_found() -> None:
    trie = trie_of("b", "a", "c.x", "c.y", "c")
    assert list(trie) == ["a", "b", "c", "c.x", "c.y"]
    assert len(trie) == 5
    assert "c" in trie
    assert "d" not in trie
    assert list(trie.with_prefix("c.")) == ["c.x", "c.y"]
    assert list(trie.with_prefix("")) == list(trie)
    assert list(islice(trie.before("c"), 9)) == ["b", "a"]
    assert list(islice(trie.after("bb"), 2)) == ["c", "c.x"]


@pytest.mark.spec("BF-14", "BF-19")
@pytest.mark.parametrize(
    ("destination", "name"),
    [("b", "b"), ("a!", "a"), ("zzz", "c.y"), ("!", "a"), ("c.*", "c.x"), ("bb*", "b"), ("c.w", "c.x"), ("*", "a")],
)
def test_the_nearest_name(destination: str, name: str) -> None:
    known = trie_of("b", "a", "c.x", "c.y", "c").nearest(destination)
    assert known is not None
    assert known.name == name


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert Trie().nearest("a") is None


@pytest.mark.spec("BF-14")
@pytest.mark.parametrize(("name", "length"), [("fr.paris", 3), ("fr.lyon", 7), ("fr.lyon.a", 8), ("x", 0), ("ch", 2)])
def test_the_longest_common_prefix_with_another_name(name: str, length: int) -> None:
    assert trie_of("ch.cern", "fr.lyon", "fr.lyon.b").longest_common(name) == length


@pytest.mark.spec("BF-12")
def test_each_neighbour_has_its_own_statement_and_takes_back_only_that() -> None:
    trie = trie_of("x")
    trie.insert(B, entry("x", candidates=()), 0)
    known = trie.find("x")
    assert known is not None
    assert known.statements == {A: BEST, B: ()}
    trie.remove(A, "x")
    trie.remove(A, "unknown")
    assert known.statements == {B: ()}
    trie.remove(B, "x")
    assert "x" not in trie
    assert trie.names_of(OWNER) == ()


def test_what_changed_is_named_once() -> None:
    trie = trie_of("x", "y")
    assert trie.take_changed() == {"x", "y"}
    assert trie.take_changed() == set()
    trie.remove(B, "x")  # it never spoke of it
    assert trie.take_changed() == set()
    trie.remove(A, "x")
    assert trie.take_changed() == {"x"}


@pytest.mark.spec("BF-04")
def test_a_name_moves_to_the_cell_with_the_higher_stamp() -> None:
    trie = trie_of("x")
    trie.insert(B, entry("x", OTHER, stamp=2, candidates=()), 5)
    known = trie.find("x")
    assert known is not None
    assert (known.cell, known.stamp, known.refreshed_ns, known.statements) == (OTHER, 2, 5, {B: ()})
    assert set(trie.names_of(OTHER)) == {"x"}
    assert not trie.names_of(OWNER)
    trie.insert(A, entry("x", OWNER, stamp=1), 6)  # late
    assert known.cell == OTHER
    trie.insert(B, entry("x", OWNER, stamp=1), 7)  # the only one that spoke for the other corrects itself
    assert set(trie.names_of(OWNER)) == {"x"}


def test_who_corrects_itself_speaks_for_the_other_cell_no_more() -> None:
    trie = Trie()
    trie.insert(A, entry("x", OTHER, stamp=2), 0)
    trie.insert(B, entry("x", OTHER, stamp=2), 0)
    trie.insert(A, entry("x", OWNER, stamp=1), 0)
    known = trie.find("x")
    assert known is not None
    assert (known.cell, set(known.statements)) == (OTHER, {B})


def test_of_equal_claims_the_smaller_id_counts_whatever_the_order() -> None:
    for first, second in ((OWNER, OTHER), (OTHER, OWNER)):
        trie = Trie()
        trie.insert(A, entry("x", first), 0)
        trie.insert(B, entry("x", second), 0)
        known = trie.find("x")
        assert known is not None
        assert known.cell == OWNER


def test_nobody_takes_a_name_from_a_neighbour_that_has_it() -> None:
    trie = Trie()
    trie.insert(OWNER, entry("x", OWNER, stamp=5, candidates=()), 0)
    trie.insert(A, entry("x", OTHER, stamp=2**62), 1)
    trie.insert(A, entry("x", OWNER, stamp=2**62), 2)
    known = trie.find("x")
    assert known is not None
    assert (known.cell, known.stamp) == (OWNER, 5)
    trie.insert(OWNER, entry("x", OWNER, stamp=6, candidates=()), 3)
    assert (known.stamp, known.refreshed_ns) == (6, 3)


def test_names_whose_stamps_do_not_rise_become_old() -> None:
    trie = trie_of("x", "y")
    trie.insert(A, entry("x", stamp=2), 10)
    trie.insert(B, entry("y", stamp=1), 10)  # heard again, but no news from its cell
    assert [known.refreshed_ns for name in trie if (known := trie.find(name)) is not None] == [10, 0]


@pytest.mark.spec("BF-15")
def test_more_names_than_wanted_are_allowed_until_there_are_f_times_as_many() -> None:
    settings = TrieSettings(names=10, slack=1.5)
    trie = trie_of(*(f"n{number:03}" for number in range(15)), settings=settings)
    assert trie.trim(0) == []
    trie.insert(A, entry("n015"), 0)
    gone = trie.trim(0)
    assert len(trie) == 10
    assert len(gone) == 6
    assert not set(gone) & set(trie)


@pytest.mark.spec("BF-16")
def test_recent_unlike_and_used_names_stay() -> None:
    settings = TrieSettings(names=4, slack=1.5)
    trie = Trie(settings)
    for number in range(6):
        trie.insert(A, entry(f"common.prefix.of.all.{number}"), 0)
    now_ns = 60 * SECOND
    recent, used, unlike = "common.prefix.of.all.1", "common.prefix.of.all.3", "different"
    trie.insert(A, entry(recent, stamp=2), now_ns)
    trie.insert(A, entry(unlike), 0)
    known = trie.find(used)
    assert known is not None
    for _ in range(20):
        known.count_use(now_ns, settings)
    trie.trim(now_ns)
    first = "common.prefix.of.all.0"  # there was nothing like it when it came
    assert list(trie) == [first, recent, used, unlike]


@pytest.mark.spec("BF-16")
def test_uses_fade() -> None:
    settings = TrieSettings(names=1)
    trie = trie_of("x", settings=settings)
    known = trie.find("x")
    assert known is not None
    for _ in range(10):
        known.count_use(0, settings)
    fresh, later = known.score(0, settings), known.score(4 * SECOND, settings)
    recency = settings.recency * (1 - 2.718281828459045 ** (-4 / 20))
    assert fresh - later == pytest.approx(recency + settings.use * 0.75)


@pytest.mark.spec("BF-16")
def test_protected_names_stay_even_if_there_are_too_many() -> None:
    trie = trie_of(*(f"n{number:03}" for number in range(30)), settings=TrieSettings(names=4))
    protected = {f"n{number:03}" for number in range(20, 30)}
    trie.trim(0, protected)
    assert set(trie) == protected
