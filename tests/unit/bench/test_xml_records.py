from __future__ import annotations

from pathlib import Path

import pytest

from bench import xml_records
from bench.registry import Own
from bench.report import Options


@pytest.mark.spec("MR-125")
def test_every_test_of_the_source_has_a_figure(tmp_path: Path) -> None:
    report = xml_records.run(Options(quick=True, charts=tmp_path), Own())
    names = {result.name.partition(",")[0] for result in report.results if result.target is None}
    assert names == {"export", "parse to a tree", "import", "query by XPath", "query by SQL", "HTML view"}
    assert all(result.value > 0 for result in report.results)
    assert [result.unit for result in report.results if result.target is not None] == ["ms"] * 3
    assert (tmp_path / "xml.png").exists()
