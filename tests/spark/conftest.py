"""One Spark session for all tests of this folder; they are skipped where Spark cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chappe.pipeline import spark as starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING = starting.missing()

if MISSING:
    collect_ignore_glob = ["test_*.py"]  # they import pyspark


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A skip that is seen, instead of files that are left out without a word."""
    if MISSING and file_path.name == "conftest.py":
        return _Missing.from_parent(parent, path=file_path)  # type: ignore[no-any-return]
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A query costs seconds where many others run."""
    for item in items:
        if "spark" in item.path.parts:
            item.add_marker(pytest.mark.timeout(600))


class _Missing(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(MISSING)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]` with 1 GB; stopped at the end."""
    folder = tmp_path_factory.mktemp("spark")
    session = starting.session(
        "local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder),
        },
    )
    yield session
    session.stop()
