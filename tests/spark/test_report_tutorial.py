"""The notebook and the pages of the tutorial run as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs" / "tutorial"


LINK = re.compile("[0-9a-f]{8}-[0-9a-f]{4}|[0-9a-f]{8}…")


def run(code: str, name: str, archive: Path, names: dict[str, Any]) -> None:
    """As it stands, but for the place of the archive: Spark's processes began in another folder."""
    assert code.count('"history') <= 1
    exec(compile(code.replace('"history', f'"{archive}'), name, "exec"), names)


def test_the_notebook_runs_from_top_to_bottom(mesh_archive: Path, spark: SparkSession) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {}
    for cell in json.loads((DOCS / "pipeline.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            run("".join(cell["source"]), f"pipeline.ipynb, {cell['id']}", mesh_archive, names)
            assert cell["outputs"] == []  # what was computed elsewhere is not shown as if it came from here
    drawn = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    assert len(drawn) == 5
    assert all(figure.axes[0].has_data() or figure.axes[0].texts for figure in drawn)
    assert set(names["alerts"].state) == {"raised", "cleared"}
    assert names["samples"].link.nunique() == 4


def test_the_lines_of_the_page_are_as_few_as_it_says_and_run(
    mesh_archive: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "pipeline.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [len([line for line in block.splitlines() if line.strip()]) for block in blocks]
    assert lines == [4, 3, 3, 3]
    for block in blocks:
        run(block, "pipeline.md", mesh_archive, {})
        assert len(LINK.findall(capsys.readouterr().out)) >= 4
