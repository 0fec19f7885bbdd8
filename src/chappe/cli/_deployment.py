"""The file of `chappe up`: a topology of brokers, routers and channels, or several nodes by name; and archives of it.

From a topology follows the configuration of every process: a router knows its leaf broker and gets the rest from
there, a broker knows the whole topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.core.sections import BrokerLink, Config, Counters, Limits, Listen, Log, Manages, NodeSection, Section
from chappe.errors import ConfigError
from chappe.links.address import parse as parse_address
from chappe.runtime.config.checks import problems
from chappe.runtime.config.reader import check, explain, from_table
from chappe.security.config import Audit, Rule, Tls, Tokens
from chappe.status.topology import BrokerSpec, ChannelSpec, Model, RouterSpec, Topology
from chappe.status.topology_checks import problems as topology_problems

if TYPE_CHECKING:
    from chappe.archive.config import Config as ArchiveConfig

Entries = dict[str, str | dict[str, Any]]  # by name: the path of a file of its own, or its tables
BOTH = "a file has either [nodes], or [[broker]], [[router]] and [[channel]]"


class NodesFile(msgspec.Struct, forbid_unknown_fields=True):
    """`[nodes]`: each node by the path of its own file, or with its tables here."""

    nodes: Entries
    archives: Entries = msgspec.field(default_factory=dict)
    dev: bool = False


class TopologyFile(Section, frozen=True, kw_only=True):
    """A topology, and what all its processes have in common; `{name}` in a path is the name of the process."""

    broker: tuple[BrokerSpec, ...] = ()
    router: tuple[RouterSpec, ...] = ()
    channel: tuple[ChannelSpec, ...] = ()
    latency_model: Model = Model()
    archives: Entries = msgspec.field(default_factory=dict)
    dev: bool = False
    limits: Limits = Limits()
    tls: Tls | None = None
    tokens: Tokens | None = None
    rule: tuple[Rule, ...] = ()
    audit: Audit | None = None
    counters: Counters | None = None
    log: Log = Log()

    @property
    def topology(self) -> Topology:
        return Topology(
            broker=self.broker,
            router=self.router,
            channel=self.channel,
            latency_model=self.latency_model,
            dev=self.dev,
        )


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a deployment: a broker, or one or several nodes."""

    name: str
    members: tuple[Config, ...]
    path: Path | None = None  # of a node's own file; None if the configuration follows from the deployment's


@dataclass(frozen=True, slots=True)
class ArchiveProcess:
    """An archive beside the nodes: a process of its own."""

    name: str
    config: ArchiveConfig


@dataclass(frozen=True, slots=True)
class Deployment:
    """Processes that are started together."""

    processes: tuple[Process, ...]
    dev: bool
    topology: Topology | None = None  # None for a file with [nodes]
    archives: tuple[ArchiveProcess, ...] = ()

    @property
    def everything(self) -> list[Process | ArchiveProcess]:
        """What `chappe up` starts."""
        return [*self.processes, *self.archives]


def read(path: Path) -> Deployment:
    """The deployment of a file; ConfigError has a line `file: key: reason` for each thing that is wrong."""
    try:
        table = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    kinds = table.keys() & {"broker", "router", "channel"}
    if "nodes" in table and kinds:
        raise ConfigError(f"{path}: nodes: {BOTH}, not both")
    if "nodes" not in table and not kinds:
        raise ConfigError(f"{path}: nodes: this key is required: {BOTH}")
    try:
        if kinds:
            return managed(msgspec.convert(table, type=TopologyFile), str(path), path.parent)
        return _nodes(msgspec.convert(table, type=NodesFile), path)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(str(path), str(error))) from None


def _nodes(file: NodesFile, path: Path) -> Deployment:
    if not file.nodes:
        raise ConfigError(f'{path}: nodes: there is none; write NAME = "FILE" below [nodes]')
    found = []
    for name, entry in file.nodes.items():
        if isinstance(entry, str):
            own = path.parent / entry
            config = check(own, dev=file.dev)
            if config.node.name != name:
                raise ConfigError(f"{path}: nodes.{name}: {own} is the file of {config.node.name!r}; names must agree")
            found.append(Process(name, (config,), own))
        else:
            node = entry.get("node", {})
            table = {**entry, "node": {**node, "name": name}} if isinstance(node, dict) else entry
            found.append(Process(name, (from_table(table, f"{path}: nodes.{name}", path.parent, file.dev),)))
    return Deployment(tuple(found), file.dev, archives=_archives(file.archives, found, str(path), path.parent))


def _archives(entries: Entries, beside: Iterable[Process], source: str, base: Path) -> tuple[ArchiveProcess, ...]:
    """Archives of a file, each by its own file or with its tables there."""
    if not entries:
        return ()
    from chappe.archive import config as archive  # it loads pyarrow, which nodes do without

    taken = {name for process in beside for name in (process.name, *(each.node.name for each in process.members))}
    found = []
    for name, entry in entries.items():
        place = f"{source}: archives.{name}"
        if name in taken:
            raise ConfigError(f"{place}: a node, broker or process has this name, too; each needs its own")
        if isinstance(entry, str):
            config = archive.load(base / entry)
            if config.archive.name != name:
                wrong = f"{base / entry} is the file of {config.archive.name!r}; names must agree"
                raise ConfigError(f"{place}: {wrong}")
        else:
            said = entry.get("archive", {})
            table = {**entry, "archive": {**said, "name": name}} if isinstance(said, dict) else entry
            config = archive.from_table(table, place, base)
        found.append(ArchiveProcess(name, config))
    logs = [str(Path(each.config.archive.log).absolute()) for each in found]
    for each, log in zip(found, logs, strict=True):
        if logs.count(log) > 1:
            raise ConfigError(f"{source}: archives.{each.name}: {log} is the log of another one, too; each has its own")
    return tuple(found)


def managed(file: TopologyFile, source: str = "topology", base: Path = Path()) -> Deployment:
    """The processes of a topology; ConfigError names what is wrong. Paths are relative to `base`."""
    topology = file.topology
    wrong = topology_problems(topology)
    if wrong:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in wrong))
    found = [*_brokers(file, topology, base), *_routers(file, topology, base)]
    wrong = [
        f"{source}: {_origin(topology, config)}: {problem}"
        for process in found
        for config in process.members
        for problem in problems(config, dev=file.dev, files=True)
    ]
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))
    return Deployment(tuple(found), file.dev, topology, _archives(file.archives, found, source, base))


def _origin(topology: Topology, config: Config) -> str:
    """The table of the file that a node's configuration follows from."""
    if config.manages is not None:
        return f"broker[{list(topology.brokers).index(config.manages.role)}]"
    return f"router[{list(topology.routers).index(config.node.name)}]"


def _brokers(file: TopologyFile, topology: Topology, base: Path) -> Iterator[Process]:
    for broker in topology.broker:
        store = broker.store if broker.shares_store else str(base / (broker.store or f"{broker.name}.db"))
        manages = Manages(role=broker.name, topology=topology, store=store)
        above = topology.brokers[broker.parent] if broker.parent else None
        for place, url in enumerate(broker.listen):
            name = broker.process(place)
            yield Process(name, (_config(file, base, name, (url,), above, manages=manages),))


def _routers(file: TopologyFile, topology: Topology, base: Path) -> Iterator[Process]:
    datagrams = {name for channel in topology.channel if channel.data == "udp" for name in channel.between}
    grouped: dict[str, list[Config]] = {}
    for router in topology.router:
        leaf = topology.brokers[router.cloud]
        urls = (router.listen, *([_datagrams(router.listen)] if router.name in datagrams else []))
        link = BrokerLink(name=leaf.name, urls=leaf.listen)
        grouped.setdefault(router.process or router.name, []).append(
            _config(file, base, router.name, urls, leaf, broker=link)
        )
    yield from (Process(name, tuple(members)) for name, members in grouped.items())


def _datagrams(url: str) -> str:
    """Where the datagrams of a router arrive: the same host and port."""
    address = parse_address(url)
    return f"udp://{str(address).partition('://')[2]}"


def _obeys(name: str, above: BrokerSpec | None) -> tuple[Rule, ...]:
    """Certificates of brokers are those of nodes; that this one obeys that broker is said by the file."""
    if above is None:
        return ()
    processes = tuple(above.process(place) for place in range(len(above.listen)))
    return (Rule("control", f"{name}/#", names=processes, roles=("node", "broker")),)


def _config(
    file: TopologyFile, base: Path, name: str, urls: tuple[str, ...], above: BrokerSpec | None, **role: Any
) -> Config:
    def own(path: str) -> str:
        return path.replace("{name}", name)

    tls, audit = file.tls and file.tls.resolved(base), file.audit and file.audit.resolved(base)
    return Config(
        node=NodeSection(name=name),
        listen=tuple(Listen(url=url) for url in urls),
        limits=file.limits,
        tls=tls and msgspec.structs.replace(tls, cert=own(tls.cert), key=own(tls.key)),
        tokens=file.tokens and file.tokens.resolved(base),
        rule=(*file.rule, *_obeys(name, above)),
        audit=audit and msgspec.structs.replace(audit, path=own(audit.path)),
        counters=file.counters,
        log=file.log,
        **role,
    )
