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


@pytest.fixture
def history(mesh_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `history` is the archive of a real mesh."""
    (tmp_path / "history").symlink_to(mesh_archive)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_notebook_runs_from_top_to_bottom(history: Path, spark: SparkSession) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {}
    for cell in json.loads((DOCS / "pipeline.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            exec(compile(code, f"pipeline.ipynb, {cell['id']}", "exec"), names)
            assert cell["outputs"] == []  # what was computed elsewhere is not shown as if it came from here
    drawn = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    assert len(drawn) == 5
    assert all(figure.axes[0].has_data() or figure.axes[0].texts for figure in drawn)
    assert set(names["alerts"].state) == {"raised", "cleared"}
    assert names["samples"].link.nunique() == 4


def test_the_lines_of_the_page_are_as_few_as_it_says_and_run(
    history: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "pipeline.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [len([line for line in block.splitlines() if line.strip()]) for block in blocks]
    assert lines == [4, 3, 3, 3]
    for block in blocks:
        exec(compile(block, "pipeline.md", "exec"), {})
        assert capsys.readouterr().out.count("\n") >= 4  # a table of four links, at least
