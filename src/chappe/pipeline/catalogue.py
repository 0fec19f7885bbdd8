"""The jobs there are, named by text, so that listing them loads no Spark; and which table comes from which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from chappe.errors import ConfigError
from chappe.pipeline.job import Job


@dataclass(frozen=True, slots=True)
class Entry:
    """One job: `module:class`, loaded when it is needed."""

    id: str
    place: str

    def load(self) -> type[Job]:
        module, _, name = self.place.partition(":")
        job: type[Job] = getattr(import_module(module), name)
        return job


_JOBS = "chappe.pipeline.jobs"
ENTRIES: Mapping[str, Entry] = {
    "ingest": Entry("SJ-01", f"{_JOBS}.ingest:Ingest"),
    "links": Entry("SJ-02", f"{_JOBS}.links:Links"),
    "forecast": Entry("SJ-03", f"{_JOBS}.forecast:Forecast"),
    "alerts": Entry("SJ-04", f"{_JOBS}.alerts:Alerts"),
    "bottlenecks": Entry("SJ-05", f"{_JOBS}.bottlenecks:Bottlenecks"),
    "calibration": Entry("SJ-06", f"{_JOBS}.calibration:Calibration"),
    "compliance": Entry("SJ-07", f"{_JOBS}.compliance:Compliance"),
    "load": Entry("SJ-08", f"{_JOBS}.load:Load"),
    "snapshots": Entry("SJ-09", f"{_JOBS}.snapshots:Snapshots"),
    "anomalies": Entry("SJ-10", f"{_JOBS}.anomalies:Anomalies"),
    "replay": Entry("SJ-11", f"{_JOBS}.replay:Replay"),
}


def find(names: Iterable[str]) -> list[type[Job]]:
    """Jobs by name or id, `all` for all of them; ConfigError names those there are."""
    found: dict[str, type[Job]] = {}
    by_id = {entry.id.lower(): name for name, entry in ENTRIES.items()}
    for given in names:
        for each in ENTRIES if given == "all" else [by_id.get(given.lower(), given)]:
            if each not in ENTRIES:
                raise ConfigError(f"no job {given!r}; there are: {', '.join(ENTRIES)}, or all")
            found[each] = ENTRIES[each].load()
    return list(found.values())


def writer(table: str) -> type[Job] | None:
    """The job that writes a table."""
    for entry in ENTRIES.values():
        job = entry.load()
        if table in job.writes:
            return job
    return None


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Each job after those whose tables it reads; ConfigError names jobs that wait for each other."""
    writers = {table: job for job in jobs for table in job.writes}
    left = list(jobs)
    done: list[Job] = []
    while left:
        ready = [
            job for job in left
            if all(writers[table] in done for table in job.reads if table in writers and writers[table] is not job)
        ]  # fmt: skip
        if not ready:
            raise ConfigError(f"jobs that wait for each other: {', '.join(job.name for job in left)}")
        done += ready
        left = [job for job in left if job not in ready]
    return done
