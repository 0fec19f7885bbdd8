"""From raw files to clean ones, file by file: what a task of ingest does, without Spark (SJ-01).

Footers say which other files may have a row of the same identity. Of a file and those, only identities are read and
hashed first; rows whose hash is alone go to the clean file as they are read, row group by row group, and the few others
are compared exactly. So a task holds one row group and eight bytes a row, whatever the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chappe.archive.schema import RECEIVED_NS, schema_of
from chappe.pipeline import repeats, rules
from chappe.pipeline.repeats import KEYS, ORDER, Hashes
from chappe.pipeline.rowfiles import Group, RowFile, Span
from chappe.pipeline.rules import CREATED_NS, SOURCE, Limits
from chappe.pipeline.taskfiles import BYTES, TEXTS, Written


@dataclass(frozen=True, slots=True)
class Work:
    """One raw file, others of its batch and earlier clean ones that may have the same rows."""

    dataset: str
    file: RowFile
    beside: tuple[RowFile, ...]
    before: tuple[RowFile, ...]
    limits: Limits
    created: Span  # of rows that are neither impossible nor late
    reach: Span  # receipt of rows that are compared


class Cleaned(NamedTuple):
    """Names of files that came of one, empty for none, and how many rows are in them."""

    clean: str
    rows: int
    bad: str
    bad_rows: int


def planned(
    dataset: str, files: Sequence[RowFile], written: Iterable[RowFile], limits: Limits, repeat_ns: int
) -> list[Work]:
    """What is to do for each file of a batch."""
    there = [each for each in files if each.rows]
    earlier = [each for each in written if each.rows]
    works = []
    for file in there:
        reach = file.received.wider(repeat_ns, repeat_ns)
        work = Work(dataset, file, (), (), limits, _believed(file, limits), reach)
        beside = tuple(each for each in there if each is not file and _close(work, each))
        before = tuple(each for each in earlier if _close(work, each))
        works.append(replace(work, beside=beside, before=before))
    return works


def cleaned(work: Work, clean: Path, bad: Path) -> Cleaned:
    """Write the clean rows of a file into one folder and those for quarantine into another."""
    dataset, source = work.dataset, work.file
    columns = [*schema_of(dataset).names, SOURCE]
    with source.open() as file:
        everything = range(file.num_row_groups)
        hashes = repeats.hashes(dataset, source.read(file, dataset, everything, KEYS[dataset]))
        ordered = np.sort(hashes)
        before, beside = _before(work, ordered), _beside(work, ordered)
        suspects = _suspects(dataset, ordered, (*before, *beside))
        with Written(clean, _coded(dataset)) as good, Written(bad, rules.QUARANTINE) as worse:
            held: list[pa.Table] = []
            first = 0
            for group in everything:
                rows = source.read(file, dataset, [group], columns)
                verdict = rules.judged(dataset, rows, work.limits)
                kept = verdict.broken == 0
                if not kept.all():
                    worse.write(rules.quarantined(dataset, rows, verdict))
                if len(suspects):
                    doubted = kept & repeats.among(hashes[first : first + rows.num_rows], suspects)
                    held.append(rows.filter(pa.array(doubted)))
                    kept &= ~doubted
                good.write(rows if kept.all() else rows.filter(pa.array(kept)))
                first += rows.num_rows
            if held:
                rows = pa.concat_tables(held).unify_dictionaries()
                good.write(rows.take(pa.array(repeats.firsts(dataset, rows, beside, before))))
    return Cleaned(good.name, good.rows, worse.name, worse.rows)


def _close(work: Work, other: RowFile | Group) -> bool:
    """Whether another file or a part of it may have a row of the same identity, as far as times say."""
    same = CREATED_NS not in KEYS[work.dataset] or _believed(other, work.limits).meets(work.created)
    return same and other.received.meets(work.reach)


def _believed(rows: RowFile | Group, limits: Limits) -> Span:
    """When rows were made that are neither impossible nor late, at most."""
    return rows.created.within(rows.received.wider(limits.late_ns, limits.ahead_ns))


def _suspects(dataset: str, ordered: Hashes, others: Sequence[pa.Table]) -> Hashes:
    """Hashes that are not alone."""
    return np.unique(np.concatenate([repeats.twice(ordered), *(repeats.hashes(dataset, each) for each in others)]))


def _before(work: Work, ordered: Hashes) -> list[pa.Table]:
    """Identities in earlier files that this file may have, too."""
    found = []
    for other in work.before:
        with other.open() as file:
            found += [rows for _, rows in _same(work, other, file, ordered)]
    return found


def _beside(work: Work, ordered: Hashes) -> list[pa.Table]:
    """Rows of other files of the batch that this file may have, too; those that break a rule do not count."""
    dataset, found = work.dataset, []
    for other in work.beside:
        with other.open() as file:
            for group, _ in _same(work, other, file, ordered):
                rows = other.read(file, dataset, [group], [*schema_of(dataset).names, SOURCE])
                good = rules.judged(dataset, rows, work.limits).broken == 0
                good &= repeats.among(repeats.hashes(dataset, rows), ordered)
                found.append(rows.filter(pa.array(good)).select([*dict.fromkeys((*KEYS[dataset], *ORDER))]))
    return found


def _same(work: Work, other: RowFile, file: pq.ParquetFile, ordered: Hashes) -> Iterator[tuple[int, pa.Table]]:
    """Row groups of another file, and identities in them, whose hashes this file has."""
    columns = [*dict.fromkeys((*KEYS[work.dataset], RECEIVED_NS))]
    for at, group in enumerate(other.groups):
        if _close(work, group):
            rows = other.read(file, work.dataset, [at], columns)
            received = rows.column(RECEIVED_NS).to_numpy()
            hit = (received >= work.reach.first) & (received <= work.reach.last)
            hit &= repeats.among(repeats.hashes(work.dataset, rows), ordered)
            if hit.any():
                yield at, rows.filter(pa.array(hit))


def _coded(dataset: str) -> pa.Schema:
    """Columns of a clean file as they are read, texts as numbers of distinct ones.

    Any may be empty for a reader: files of earlier versions say so, too.
    """
    coded = {pa.string(): TEXTS, pa.binary(): BYTES}
    fields = [*schema_of(dataset), pa.field(SOURCE, pa.string())]
    return pa.schema([pa.field(field.name, coded.get(field.type, field.type)) for field in fields])
