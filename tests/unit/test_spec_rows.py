"""The copy of the rows of the specification and of the pipeline's jobs is whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.spec.rows import load_rows, open_rows


def test_every_row_of_the_five_documents_is_known() -> None:
    groups = Counter(row.id[:2] for row in load_rows().values())
    assert groups == {"GS": 112, "NS": 86, "MR": 136, "CN": 137, "BF": 48, "SJ": 11}
    assert groups.total() == 530


def test_every_row_says_what_it_is_about() -> None:
    assert [row.id for row in load_rows().values() if len(row.title) < 3] == []


def test_the_page_lists_every_row_without_a_test() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    listed = page.partition("## Rows without a test\n")[2]
    assert open_rows() in listed, "write what `python -m tests.spec --open` prints into docs/reference/spec.md"
