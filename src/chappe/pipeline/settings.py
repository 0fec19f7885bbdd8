"""What a pipeline is told by its file: `[pipeline]` in TOML, the same as the options of `chappe pipeline run`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from chappe.errors import ConfigError

Value = str | int | float | bool


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a pipeline reads and writes, what it runs on, and the parameters of its jobs."""

    archive: str = ""  # folder or URI of the archive's segments
    log: str = ""  # folder of its live log, on this machine
    source: str = ""  # name of one archive, where several share the folder
    work: str = "work"  # tables, checkpoints and outboxes
    node: str = ""  # address of the node that results are published to
    master: str = ""
    connect: str = ""
    max_rows: int = 32_000_000
    trigger_s: float = 0.5
    jobs: tuple[str, ...] = ()
    set: dict[str, dict[str, Value]] = {}  # parameters by job
    spark: dict[str, str] = {}  # settings of Spark by their names


def load(path: Path) -> Settings:
    """ConfigError names the file, the key and what is wrong."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if set(table) != {"pipeline"}:
        raise ConfigError(f"{path}: one table [pipeline] is wanted, found {', '.join(table) or 'none'}")
    try:
        return msgspec.convert(table["pipeline"], Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: [pipeline] {error}") from None


def assigned(texts: Iterable[str], before: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
    """Parameters by job, from `job.name=value`, over those of the file."""
    merged = {job: dict(values) for job, values in before.items()}
    for text in texts:
        place, equals, value = text.partition("=")
        job, dot, name = place.partition(".")
        if not (equals and dot and job and name):
            raise ConfigError(f"--set {text!r}: must be JOB.NAME=VALUE, like alerts.latency_ms=50")
        merged.setdefault(job, {})[name] = value
    return merged
