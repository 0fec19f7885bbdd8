"""Rows from a publisher through a mesh, an archive and ingest to a table, with a kill of each on the way."""

from __future__ import annotations

import pytest

from bench import exactly_once
from bench.registry import ExactlyOnceOptions
from bench.report import Options


@pytest.mark.timeout(900)
def test_every_acknowledged_row_is_in_the_table_once() -> None:
    report = exactly_once.run(Options(quick=True), ExactlyOnceOptions(rows=300, kills=3))
    assert report.met, report.as_dict()
    assert {result.name: result.value for result in report.results}["rows acknowledged"] == 300
