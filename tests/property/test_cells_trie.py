"""The trie against a plain list of names: order, nearest names, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cells.names import gap
from chappe.cells.trie import Trie, TrieSettings
from chappe.wire.celladverts import Entry

SENDERS = [bytes([number]) * 8 for number in range(3)]
names = st.text("ab.é", min_size=1, max_size=5)
steps = st.lists(st.tuples(st.booleans(), st.sampled_from(SENDERS), names, st.sampled_from(SENDERS)), max_size=60)


@pytest.mark.spec("BF-14", "BF-19")
@given(steps, names, st.booleans())
def test_it_answers_as_a_list_of_all_names_would(
    said: list[tuple[bool, bytes, str, bytes]], asked: str, prefix: bool
) -> None:
    trie = Trie()
    model: dict[str, set[bytes]] = {}
    for more, sender, name, _ in said:
        if more:
            trie.insert(sender, Entry(name, SENDERS[0], 1), 0)
            model.setdefault(name, set()).add(sender)
        else:
            trie.remove(sender, name)
            model.get(name, set()).discard(sender)
    known = sorted(name for name, senders in model.items() if senders)
    assert list(trie) == known
    assert set(trie.names_of(SENDERS[0])) == set(known)
    assert list(trie.before(asked)) == [name for name in reversed(known) if name < asked]
    assert list(trie.after(asked)) == [name for name in known if name > asked]
    assert list(trie.with_prefix(asked)) == [name for name in known if name.startswith(asked)]
    destination = asked + "*" if prefix else asked
    nearest = trie.nearest(destination)
    assert (nearest is None) == (not known)
    if nearest is not None:
        assert gap(nearest.name, destination) == min(gap(name, destination) for name in known)
    others = [name for name in known if name != asked]
    alike = [next((at for at in range(len(asked), 0, -1) if other.startswith(asked[:at])), 0) for other in others]
    assert trie.longest_common(asked) == max(alike, default=0)


@pytest.mark.spec("BF-15")
@given(st.lists(st.tuples(names, st.integers(0, 100), st.booleans()), max_size=200), st.integers(1, 10))
def test_it_is_bounded_whatever_is_said(said: list[tuple[str, int, bool]], most: int) -> None:
    trie = Trie(TrieSettings(names=most))
    protected = {"a", "b"}
    for name, now_ns, used in said:
        trie.insert(SENDERS[0], Entry(name, SENDERS[1], now_ns), now_ns)
        known = trie.find(name)
        if used and known is not None:
            known.count_use(now_ns, trie.settings)
        before = set(trie)
        gone = trie.trim(now_ns, protected)
        assert set(trie) == before - set(gone)
        assert not protected & set(gone)
        assert len(trie) <= max(1.5 * most, len(protected))
        assert not gone or len(trie) == max(most, len(protected & before))


@given(steps)
def test_every_name_is_of_one_cell(said: list[tuple[bool, bytes, str, bytes]]) -> None:
    trie = Trie()
    for stamp, (_, sender, name, cell) in enumerate(said):
        trie.insert(sender, Entry(name, cell, stamp % 3), 0)
    of_cells = sorted(name for cell in SENDERS for name in trie.names_of(cell))
    assert of_cells == list(trie)
