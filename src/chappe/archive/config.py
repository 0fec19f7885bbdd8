"""The TOML file of an archive as one frozen tree; every error names file, key and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from chappe.archive.schema import DATASETS
from chappe.archive.writer import Limits
from chappe.client.access import NodeAccess, decode_config, read_config, resolve_paths
from chappe.core.sections import Section
from chappe.errors import ConfigError, ProtocolError
from chappe.links.address import parse as parse_address
from chappe.security.pages import PageAccess
from chappe.wire.events import check_topic
from chappe.wire.topics import has_wildcard, pattern_problem

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.]+$")]
Mode = Annotated[int, Meta(ge=0, le=15)]
DATASET_SWITCHES = ("measurements", "counters", "broker", "quality")


class Variables(Section, frozen=True):
    """Variables to keep: PUBLISHER/VARIABLE, `*` for any characters; one value every `interval_s`, or all."""

    name: Annotated[str, Meta(min_length=3, max_length=1024, pattern=r"^[^/]+/.+$")]
    interval_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class Archive(NodeAccess, frozen=True, kw_only=True):
    """`[archive]`: what this archive is called, which node it taps, what it keeps, where and for how long."""

    name: Name
    folder: str  # of the segments: a path or a URI like s3://bucket/history
    log: str  # a folder on a local disk
    brokers: tuple[str, ...] = ()  # urls of brokers, which publish to their own clients alone
    topics: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    variables: tuple[Variables, ...] = ()
    modes: Annotated[tuple[Mode, ...], Meta(min_length=1)] = (0,)  # in which variables are taken; not in a crisis
    flooded: bool = False
    durable: bool = True
    measurements: bool = True
    counters: bool = True
    broker: bool = True
    quality: bool = True
    commit_ms: Annotated[float, Meta(gt=0, le=10_000)] = 20.0
    commit_bytes: Annotated[int, Meta(ge=4096)] = 4 << 20
    age_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    bytes: Annotated[int, Meta(ge=4096, le=1 << 32)] = 64 << 20
    waiting_bytes: Annotated[int, Meta(ge=4096, le=1 << 32)] = 32 << 20
    queue: Annotated[int, Meta(ge=1, le=1 << 26)] = 1 << 20  # values of a stream that wait to be taken
    discover_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    report_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    drain_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0  # for what has come before the end
    retention_days: dict[str, Annotated[float, Meta(gt=0, le=36_500)]] = msgspec.field(default_factory=dict)
    tend_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0  # how often segments are joined and expired
    compaction: bool = True
    compact_rows: Annotated[int, Meta(ge=2, le=1 << 30)] = 1 << 22

    @property
    def limits(self) -> Limits:
        """The limits of the writer."""
        return Limits(age_ns=round(self.age_s * 1e9), bytes=self.bytes, waiting_bytes=self.waiting_bytes)

    @property
    def feeds(self) -> list[str]:
        """Datasets that come from what nodes, brokers and clients publish about themselves."""
        return [dataset for dataset in DATASET_SWITCHES if getattr(self, dataset)]


class Config(Section, frozen=True):
    """The whole file."""

    archive: Archive
    metrics: PageAccess = PageAccess()


def load(path: str | Path) -> Config:
    """The tree of a file, its paths relative to it; ConfigError names the file, the key and the reason."""
    return parse(read_config(path), str(path), Path(path).parent)


def parse(text: str, source: str = "configuration", base: Path = Path()) -> Config:
    """The tree of a TOML text."""
    return _resolve_config(decode_config(text, source, Config, _check), base)


def from_table(table: object, source: str, base: Path = Path()) -> Config:
    """The tree of tables that stand in another file."""
    try:
        config = msgspec.convert(table, type=Config)
        _check(config)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from None
    return _resolve_config(config, base)


def _resolve_config(config: Config, base: Path) -> Config:
    archive = resolve_paths(config.archive, base, "folder", "log")
    return msgspec.structs.replace(config, archive=archive, metrics=config.metrics.resolved(base))


def _check(config: Config) -> None:
    of = config.archive
    of.check_access("archive")
    if "://" in of.log:
        raise ConfigError(f"archive.log: {of.log} is no folder; the log is on a local disk, `folder` may be a URI")
    for dataset in of.retention_days:
        if dataset not in DATASETS:
            raise ConfigError(f"archive.retention_days: no dataset {dataset!r}; there are {', '.join(DATASETS)}")
    for pattern in of.topics:
        _check_pattern(pattern)
    if config.metrics.address:
        try:
            address = parse_address(f"tcp://{config.metrics.address}")
        except ConfigError:
            raise ConfigError(f"metrics.address: {config.metrics.address!r} is not host:port") from None
        for problem in config.metrics.problems(address.is_loopback):
            raise ConfigError(problem)


def _check_pattern(pattern: str) -> None:
    """A pattern is a topic some of whose levels are wildcards."""
    problem = pattern_problem(pattern)
    if problem:
        raise ConfigError(f"archive.topics: {pattern!r}: {problem}")
    try:
        check_topic("/".join("x" if has_wildcard(level) else level for level in pattern.split("/")))
    except ProtocolError as error:
        raise ConfigError(f"archive.topics: {pattern!r}: {error}") from None
