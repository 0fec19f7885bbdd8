"""The TOML file of an aggregator as one frozen tree; every error names file, key and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from chappe.aggregation.access import Access, View
from chappe.aggregation.aggregator import Settings, StandingOrder
from chappe.aggregation.alerts import Alerts, Rule
from chappe.aggregation.foreign.mapping import Foreign
from chappe.client.access import NodeAccess, decode_config, read_config, resolve_paths
from chappe.core.sections import Section
from chappe.errors import ConfigError

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Follow(Section, frozen=True):
    """Another realm whose measurements are read, as which of its groups (MR-089)."""

    realm: Name
    group: Name


class Aggregates(NodeAccess, frozen=True, kw_only=True):
    """`[aggregates]`: who this aggregator is, which node it uses, and what it keeps for how long."""

    name: Name
    realm: Name
    store: str
    nodes: tuple[str, ...] = ("*",)
    announce_s: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    snapshot_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 60.0
    commit_s: Annotated[float, Meta(ge=0, le=60)] = 0.2
    keep_days: Annotated[float, Meta(gt=0, le=36_500)] = 30.0
    keep_rows: Annotated[int, Meta(ge=10, le=1 << 31)] = 100_000
    xml: str = ""  # a flat file that is written beside the store
    follow: tuple[Follow, ...] = ()


class Config(Section, frozen=True):
    """The whole file."""

    aggregates: Aggregates
    alert: tuple[Rule, ...] = ()
    view: tuple[View, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    order: tuple[StandingOrder, ...] = ()

    def settings(self) -> Settings:
        """The settings of the aggregator itself."""
        of = self.aggregates
        advises = {link.uuid(): (link.node, link.weight) for each in self.foreign for link in each.link if link.weight}
        return Settings(
            name=of.name, realm=of.realm, url=of.urls[0], nodes=of.nodes, announce_s=of.announce_s,
            snapshot_s=of.snapshot_s, follows=tuple((each.realm, each.group) for each in of.follow), advises=advises,
            orders=self.order,
        )  # fmt: skip


def load(path: str | Path) -> Config:
    """The tree of a file, its paths relative to it; ConfigError names the file, the key and the reason."""
    return parse(read_config(path), str(path), Path(path).parent)


def parse(text: str, source: str = "configuration", base: Path = Path()) -> Config:
    """The tree of a TOML text."""
    config = decode_config(text, source, Config, _check)
    return msgspec.structs.replace(config, aggregates=resolve_paths(config.aggregates, base, "store", "xml"))


def _check(config: Config) -> None:
    Alerts(config.alert)
    Access(config.view)
    config.settings()
    of = config.aggregates
    of.check_access("aggregates")
    for each in of.follow:
        if each.realm == of.realm:
            raise ConfigError(f"aggregates.follow: {each.realm} is the own realm; its reports come anyway")
    for foreign in config.foreign:
        if foreign.kind == "prometheus" and not foreign.metric:
            raise ConfigError(f"foreign {foreign.place}: prometheus needs [[foreign.metric]] tables")
        if not foreign.link:
            raise ConfigError(f"foreign {foreign.place}: [[foreign.link]] tables say which links its results are about")
