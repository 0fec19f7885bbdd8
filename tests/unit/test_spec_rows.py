"""The copy of the rows of the specification and of the pipeline's jobs is whole."""

from __future__ import annotations

from collections import Counter

from tests.spec.rows import load_rows


def test_every_row_of_the_five_documents_is_known() -> None:
    groups = Counter(row.id[:2] for row in load_rows().values())
    assert groups == {"GS": 112, "NS": 86, "MR": 136, "CN": 137, "BF": 48, "SJ": 11}
    assert groups.total() == 530


def test_every_row_says_what_it_is_about() -> None:
    assert [row.id for row in load_rows().values() if len(row.title) < 3] == []
