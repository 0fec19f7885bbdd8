"""Link statistics from files to files: what tasks of SJ-02 do, without Spark.

A task sums a file by end and minute and leaves the sums in an order of hashes of ends. The next ones take all sums of
some ends each, and write what their periods are; sums of groups, which every one of them has parts of, go the same way
once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chappe.measure.cost import Formula
from chappe.pipeline import buckets, linkadvice, linkfigures, linkperiods, minutesums
from chappe.pipeline.buckets import Range
from chappe.pipeline.minutesums import NAMES, SUMS, Whole
from chappe.pipeline.taskfiles import Written

TRIED_ROWS = 1 << 20  # by one task


class Turn(NamedTuple):
    """Row groups of a file that were summed together, and when the newest minute among them begins."""

    path: str
    groups: list[int]
    newest_ns: int


class Summed(NamedTuple):
    """Files with sums, how many there are, and how many rows each minute has."""

    names: list[str]
    sums: int
    turns: list[Turn]
    start_ns: Whole
    rounds: Whole


class Made(NamedTuple):
    """Names of files that came of some ends, empty for none."""

    statistics: str = ""
    spikes: str = ""
    groups: str = ""
    grouped: int = 0  # rows of the last
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """Newest rows of some ends, on which windows are tried."""

    turns: Sequence[Turn]
    since_ns: int
    ends: Range


@dataclass(frozen=True, slots=True)
class Folders:
    """Where tasks write."""

    sums: Path
    groups: Path
    link_statistics: Path
    group_statistics: Path
    spikes: Path
    window_advice: Path


def summed(folder: Path, path: str) -> Summed:
    """Write the sums of a file."""
    names: list[str] = []
    held: list[pa.Table] = []
    turns: list[Turn] = []
    minutes: list[tuple[Whole, Whole]] = []
    many = 0
    with pq.ParquetFile(path, read_dictionary=list(NAMES)) as file:
        for groups in minutesums.turns(file):
            sums = minutesums.summed(file.read_row_groups(groups, list(minutesums.COLUMNS), use_threads=False))
            start, rounds = _minutes(sums)
            turns.append(Turn(path, groups, int(start.max())))
            minutes.append((start, rounds))
            held.append(sums)
            many += sums.num_rows
            if sum(each.num_rows for each in held) >= buckets.ROWS:
                names.append(buckets.write(pa.concat_tables(held), NAMES, folder))
                held = []
    if held:
        names.append(buckets.write(pa.concat_tables(held), NAMES, folder))
    none = np.zeros(0, np.int64)
    start, rounds = (np.concatenate([none, *parts]) for parts in (zip(*minutes, strict=True) if minutes else ((), ())))
    return Summed(names, many, turns, start, rounds)


def made(formula: Formula, z: float, folders: Folders, names: Sequence[str], work: Range | Trial) -> Made:
    """Write what the sums of some ends, or the newest rows of some, come to."""
    if isinstance(work, Trial):
        return Made(advice=_tried(folders.window_advice, work))
    found = buckets.read([folders.sums / name for name in names], work)
    if not found:
        return Made()
    groups = []
    with (
        Written(folders.link_statistics, linkfigures.LINK_STATISTICS) as statistics,
        Written(folders.spikes, linkfigures.SPIKES) as spikes,
    ):
        for table, by in linkperiods.of_ends(pa.Table.from_batches(found, SUMS), z):
            if by:
                groups.append(table)
                continue
            statistics.write(linkfigures.of_ends(formula, table))
            spikes.write(linkfigures.spikes(table))
    grouped = pa.concat_tables(groups)
    name = buckets.write(grouped, linkfigures.GROUP_KEYS, folders.groups)
    return Made(statistics.name, spikes.name, name, grouped.num_rows)


def grouped(formula: Formula, folders: Folders, names: Sequence[str], work: Range) -> str:
    """Write the statistics of some groups."""
    found = buckets.read([folders.groups / name for name in names], work)
    with Written(folders.group_statistics, linkfigures.GROUP_STATISTICS) as written:
        if found:
            written.write(linkfigures.of_groups(formula, pa.Table.from_batches(found)))
    return written.name


def trials(done: Sequence[Summed], least: int) -> list[Trial]:
    """How the newest rows are shared out among tasks."""
    none = np.zeros(0, np.int64)
    start = np.concatenate([none, *(each.start_ns for each in done)])
    rounds = np.concatenate([none, *(each.rounds for each in done)])
    since = linkadvice.newest_ns(start, rounds, least)
    turns = [turn for each in done for turn in each.turns if turn.newest_ns >= since]
    wanted = int(rounds[start >= since].sum())
    return [Trial(turns, since, each) for each in buckets.ranges(wanted, TRIED_ROWS)] if wanted else []


def _minutes(sums: pa.Table) -> tuple[Whole, Whole]:
    """How many rows there are by minute."""
    start, place = np.unique(sums.column("start_ns").to_numpy(), return_inverse=True)
    return start, np.bincount(place, sums.column("rounds").to_numpy()).astype(np.int64)


def _tried(folder: Path, trial: Trial) -> str:
    found = []
    for turn in trial.turns:
        with pq.ParquetFile(turn.path, read_dictionary=list(NAMES)) as file:
            rows = file.read_row_groups(turn.groups, list(linkadvice.COLUMNS), use_threads=False)
        rows = rows.filter(pa.array(rows.column("created_ns").to_numpy() >= trial.since_ns))
        if trial.ends != buckets.ALL:
            bucket = buckets.numbers(rows, NAMES)
            rows = rows.filter(pa.array((bucket >= trial.ends.first) & (bucket < trial.ends.last)))
        found.append(rows)
    with Written(folder, linkadvice.WINDOW_ADVICE) as written:
        written.write(linkadvice.of_rows(pa.concat_tables(found)))
    return written.name
