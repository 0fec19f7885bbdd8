"""What a configuration must satisfy beyond the types of its keys."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509

from chappe.core.sections import Config
from chappe.errors import ConfigError, RefusedError
from chappe.links.address import parse as parse_address
from chappe.links.administrative import is_site, parse_site
from chappe.links.kinds import factories, factory_of, stream_schemes
from chappe.links.proxy import ENVIRONMENT, parse_proxy
from chappe.runtime.config.cell_checks import cell_problems
from chappe.runtime.config.mesh_checks import mesh_problems
from chappe.security.certificates import identity_of
from chappe.security.identity import dev_identity
from chappe.security.patterns import NODES, AddressPattern, PatternError
from chappe.security.rules import RuleBook, check_rule
from chappe.status.topology_checks import problems as topology_problems

MULTICAST = "udp+multicast"


def problems(config: Config, dev: bool = False, files: bool = False) -> list[str]:
    """One line `key: reason` for each thing that is wrong; `files` also looks whether named files can be read."""
    found = [*_addresses(config, dev), *_peers(config), *_transports(config), *_references(config), *_patterns(config),
             *_consistency(config),
             *(() if dev else _denied(config)),
             *_management(config), *mesh_problems(config), *cell_problems(config, dev)]  # fmt: skip
    if files:
        found += _files(config)
    return found


def fixed(old: Config, new: Config) -> list[str]:
    """What of a running node's configuration was changed that cannot change."""
    found = [f"node.{key}: cannot change while the node runs; restart it" for key in ("name", "leaf", "layout")
             if getattr(new.node, key) != getattr(old.node, key)]  # fmt: skip
    if new.listen != old.listen:
        found.append("listen: cannot change while the node runs; restart it")
    if (new.tls, new.tokens) != (old.tls, old.tokens):
        found.append("tls, tokens: names of files cannot change while the node runs; their content may")
    if (new.broker and new.broker.name, new.manages) != (old.broker and old.broker.name, old.manages):
        found.append("broker, manages: cannot change while the node runs; restart it")
    keys = [key for key in ("mesh", "measure", "report", "cells", "counters") if getattr(new, key) != getattr(old, key)]
    return found + [f"{key}: cannot change while the node runs; restart it" for key in keys]


def _addresses(config: Config, dev: bool) -> Iterator[str]:
    places = [(f"listen[{at}].url", entry.url, True) for at, entry in enumerate(config.listen)]
    for at, peer in enumerate(config.peer):
        for place, url in enumerate(peer.urls):
            key = f"peer[{at}].url" if isinstance(peer.url, str) else f"peer[{at}].url[{place}]"
            if is_site(url):
                yield from (f"{key}: {problem}" for problem in _site(url, dev))
            else:
                places.append((key, url, False))
    if config.broker is not None:
        places += [(f"broker.urls[{at}]", url, False) for at, url in enumerate(config.broker.urls)]
    seen: dict[str, str] = {}
    datagrams = 0
    for key, url, listening in places:
        try:
            allowed = (*stream_schemes(), "udp") if listening else stream_schemes()
            grouped = key.startswith("peer[")
            address = parse_address(url, (*allowed, MULTICAST) if grouped else allowed)
        except ConfigError as error:
            yield f"{key}: {error}"
            continue
        datagrams += listening and address.scheme == "udp"
        if datagrams > 1:
            yield f"{key}: a node has one udp:// address"
        if listening and (address.port or address.path) and seen.setdefault(str(address), key) != key:
            yield f"{key}: {address} is listened on twice"
        if dev and not address.is_loopback:
            yield f"{key}: --dev has no authentication and serves loopback only; {address.host} is not loopback"
        elif not factory_of(address).secure and not address.is_loopback:
            better = "wss" if address.scheme == "ws" else "tls"
            yield f"{key}: plain {address.scheme} is for loopback only; use {better}:// for {address.host}"
        if factory_of(address).encrypts and config.tls is None:
            yield f"{key}: {address.scheme}:// needs a [tls] section with ca, cert and key"
    if config.metrics.address:
        try:
            address = parse_address(f"tcp://{config.metrics.address}")
        except ConfigError:
            yield f"metrics.address: {config.metrics.address!r} is not host:port"
        else:
            if dev and not address.is_loopback:
                yield f"metrics.address: --dev serves loopback only; {address.host} is not loopback"
            yield from config.metrics.problems(address.is_loopback)


def _site(url: str, dev: bool) -> Iterator[str]:
    try:
        site = parse_site(url)
    except ConfigError as error:
        yield str(error)
        return
    if dev and not site.address.is_loopback:
        yield f"--dev has no authentication and serves loopback only; {site.address.host} is not loopback"


def _peers(config: Config) -> Iterator[str]:
    seen: set[str] = set()
    for at, peer in enumerate(config.peer):
        if peer.name == config.node.name:
            yield f"peer[{at}].name: {peer.name!r} is this node itself"
        if peer.name in seen:
            yield f"peer[{at}].name: {peer.name!r} is used twice"
        seen.add(peer.name)
        if len(peer.urls) > 1 and any(url.startswith(f"{MULTICAST}:") for url in peer.urls):
            yield f"peer[{at}].url: a multicast group stands alone; give it a [[peer]] of its own"
        if peer.interface and _no_ip(peer.interface):
            yield f"peer[{at}].interface: {peer.interface!r} is not the IP address of an interface of this machine"
        for kind in peer.prefer:
            if kind not in factories():
                yield f"peer[{at}].prefer: there is no transport {kind!r}; one of {', '.join(factories())}"
        if peer.proxy and peer.proxy != ENVIRONMENT:
            try:
                parse_proxy(peer.proxy)
            except ConfigError as error:
                yield f"peer[{at}].proxy: {error}"
        if peer.reconnect_min_s > peer.reconnect_max_s:
            yield f"peer[{at}].reconnect_min_s: is above reconnect_max_s ({peer.reconnect_max_s})"


def _transports(config: Config) -> Iterator[str]:
    for kind in config.transport:
        if kind not in factories():
            yield f"transport.{kind[:40]}: there is no such transport; one of {', '.join(factories())}"


def _no_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return True
    return False


def _references(config: Config) -> Iterator[str]:
    known = {peer.name for peer in config.peer}
    groups = {peer.name for peer in config.peer if any(url.startswith(f"{MULTICAST}:") for url in peer.urls)}
    for at, topics in enumerate(config.topic_route):
        for name in groups.intersection(topics.to):
            yield f"topic_route[{at}].to: {name!r} is a multicast group, which carries variables and no events"
    lists = [(f"path[{at}].to", route.to) for at, route in enumerate(config.path)]
    lists += [(f"topic_route[{at}].to", topics.to) for at, topics in enumerate(config.topic_route)]
    for key, names in lists:
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                yield f"{key}: there is no [[peer]] named {name!r} (peers: {listed})"


def _patterns(config: Config) -> Iterator[str]:
    keys = [(f"path[{at}].variables", route.variables) for at, route in enumerate(config.path)]
    keys += [(f"topic_route[{at}].pattern", topics.pattern) for at, topics in enumerate(config.topic_route)]
    for at, topics in enumerate(config.topic_route):
        if topics.pattern.startswith(NODES) and "/" in topics.pattern:
            yield f"topic_route[{at}].pattern: give the name of a node without its unit, or {NODES}# for all others"
    for key, pattern in keys:
        try:
            AddressPattern.address(pattern)
        except PatternError as error:
            yield f"{key}: {error}"
    for at, route in enumerate(config.path):
        if not route.modes:
            yield f"path[{at}].modes: is empty; leave the key out for all modes"
    for at, rule in enumerate(config.rule):
        try:
            check_rule(rule, f"rule[{at}]")
        except ConfigError as error:
            yield str(error)


def _denied(config: Config) -> Iterator[str]:
    """A route to a peer that a rule denies: events would have to be looked at one by one."""
    try:
        book = RuleBook.of(config.rule)
    except ConfigError:
        return
    for at, topics in enumerate(config.topic_route):
        for name in topics.to:
            decision = book.allows(dev_identity(name, "node"), "subscribe", topics.pattern)
            if not decision:
                yield f"topic_route[{at}]: {decision.reason}"


def _consistency(config: Config) -> Iterator[str]:
    if config.broker is not None and config.path:
        yield f"path: paths of this node come from the broker {config.broker.name}; remove [[path]] or [broker]"
    if config.broker is not None and config.manages is not None:
        yield "manages: a broker forwards nothing and has no broker of its own; its parent is in the topology"
    if config.limits.credit and config.limits.credit < 2 * config.limits.payload:
        yield f"limits.credit: must hold two frames of limits.payload ({2 * config.limits.payload} bytes), or be 0"
    if config.tls is not None and not config.tls.cert:
        yield "tls.cert: a node needs a certificate; make one with `chappe cert node NAME`"
    if config.limits.queue_bytes < config.limits.payload:
        yield f"limits.queue_bytes: must hold a frame of limits.payload ({config.limits.payload} bytes)"


def _management(config: Config) -> Iterator[str]:
    if config.manages is None:
        return
    if config.broker is not None:
        yield "broker: a node with [manages] is a broker itself; its parent is in manages.topology"
    topology, role = config.manages.topology, config.manages.role
    yield from (f"manages.topology: {problem}" for problem in topology_problems(topology))
    if role not in topology.brokers:
        yield f"manages.role: there is no broker {role!r} in manages.topology"


def _files(config: Config) -> Iterator[str]:
    named: list[tuple[str, str]] = []
    if config.tls is not None:
        named += [(f"tls.{key}", getattr(config.tls, key)) for key in ("ca", "cert", "key", "crl")]
    if config.tokens is not None:
        named += [(f"tokens.keys[{at}]", key) for at, key in enumerate(config.tokens.keys)]
        named.append(("tokens.revoked", config.tokens.revoked))
    for key, path in named:
        if path and not os.access(path, os.R_OK):
            yield f"{key}: {path} cannot be read"
    if config.tls is not None and config.tls.cert and os.access(config.tls.cert, os.R_OK):
        yield from _certificate(config.node.name, config.tls.cert)
    if config.audit is not None and not Path(config.audit.path).parent.is_dir():
        yield f"audit.path: {Path(config.audit.path).parent} is no folder; create it"


def _certificate(node: str, path: str) -> Iterator[str]:
    """Others know a node by its certificate: a node of another name would be refused by all of them."""
    try:
        identity = identity_of(x509.load_pem_x509_certificate(Path(path).read_bytes()))
    except (OSError, ValueError, RefusedError) as error:
        yield f"tls.cert: {path} is no certificate of a node: {error}"
        return
    if (identity.role, identity.name) != ("node", node):
        yield f"tls.cert: {path} is for {identity}, and node.name is {node!r}; both must be the same node"
