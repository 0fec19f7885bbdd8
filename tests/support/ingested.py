"""The archive of a real mesh run as clean tables, made once a run of tests by SJ-01."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chappe.archive.schema import DATASETS
from chappe.pipeline.job import RAW
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ingested(spark: SparkSession, archive: Path) -> dict[str, DataFrame]:
    """The clean tables of an archive's folder, `quarantine` among them."""
    tables = Tables(archive.parent / "clean")
    job = Ingest()
    missing = [name for name in job.writes if not tables.exists(name)]
    if missing:
        raw = {
            f"{RAW}{name}": spark.read.format("chappe").options(path=str(archive), dataset=name).load()
            for name in DATASETS
        }
        made = job.run(raw, 0)
        for name in missing:
            tables.replace(name, made[name])
    return {name: tables.read(spark, name) for name in job.writes}
