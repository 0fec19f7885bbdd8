"""Tables of jobs as the report reads them: with Arrow alone, so that no session of Spark is started for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.dataset as ds

from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    import pandas as pd


class Lacking(Exception):
    """There is nothing to draw; the text says why, for the reader of the report."""


@dataclass(frozen=True)
class Scope:
    """The time that a report is about, how many links it draws one by one, and moments that somebody wants marked."""

    from_ns: int
    to_ns: int
    links: int = 6
    marks: tuple[tuple[int, str], ...] = ()

    def within(self, column: str) -> ds.Expression:
        """Rows of this time."""
        return (ds.field(column) >= self.from_ns) & (ds.field(column) <= self.to_ns)


class Stored:
    """The tables below the folder of a pipeline."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def exists(self, name: str) -> bool:
        return self._tables.exists(name)

    def count(self, name: str) -> int:
        """Rows of a table; 0 if there is none."""
        return int(self._dataset(name).count_rows()) if self.exists(name) else 0

    def total(self, name: str, column: str) -> int:
        """The sum of a column; 0 if there is no table."""
        return int(pc.sum(self._dataset(name).to_table([column])[column]).as_py() or 0) if self.exists(name) else 0

    def read(self, name: str, job: str, columns: Sequence[str], where: ds.Expression | None = None) -> pd.DataFrame:
        """Columns of the rows that fit; Lacking names the job to run if there are none."""
        if not self.exists(name):
            raise Lacking(f"There is no table {name} yet: chappe pipeline run {job}")
        dataset = self._dataset(name)
        unknown = [column for column in columns if column not in dataset.schema.names]
        if unknown:
            raise Lacking(
                f"Table {name} has no column {unknown[0]}: run {job} again, it was written by another version."
            )
        found = dataset.to_table(columns=list(columns), filter=where).to_pandas()
        if found.empty:
            raise Lacking(f"Table {name} has no rows of this time.")
        return found

    def span_ns(self, name: str, column: str) -> tuple[int, int] | None:
        """The first and the last time in a column, from what files say of themselves; None without one."""
        if not self.exists(name) or column not in self._dataset(name).schema.names:
            return None
        known = [
            group.statistics[column]
            for fragment in self._dataset(name).get_fragments()
            for group in fragment.row_groups
            if group.num_rows and column in group.statistics
        ]
        if not known:
            return None
        return min(each["min"] for each in known), max(each["max"] for each in known)

    def _dataset(self, name: str) -> ds.Dataset:
        # The folder behind the link: a job that replaces the table meanwhile turns the link, and leaves this one be.
        return ds.dataset(self._tables.path(name).resolve(), format="parquet", partitioning="hive")
