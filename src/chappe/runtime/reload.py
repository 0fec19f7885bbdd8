"""Other configuration for a node that runs: limits, rules, peers and paths (certificates are read before)."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from chappe.core.build import engine_limits
from chappe.core.sections import Config
from chappe.core.variables import static_routes
from chappe.links.tick import FlushTick
from chappe.runtime.background import in_slices
from chappe.runtime.build import Parts, switches_of
from chappe.runtime.links.connections import Connection
from chappe.runtime.recheck import recheck
from chappe.security.rules import RuleBook
from chappe.wire.control import Goodbye

log = structlog.get_logger(__name__)


async def apply(
    parts: Parts, config: Config, book: RuleBook, tick: FlushTick, lapsed: Callable[[Connection], str | None]
) -> None:
    """Use it; `lapsed(connection)` says why an identity is believed no more."""
    core, shell = parts.core, parts.shell
    _follow_rules(parts, book)
    if parts.mesh is not None:
        parts.mesh.reload(config)
    core.control.limit(config.limits)
    parts.reception.limits = parts.carrier.limits = config.limits
    shell.limit_rates(config.limits.rate > 0)
    core.engine.set_limits(**engine_limits(config.limits))
    parts.channels.reload(config)
    parts.connections.transports.follow(switches_of(config))
    if parts.mesh is not None:
        parts.mesh.follow_factors()
    parts.datagrams.groups.follow(parts.peers, tick)
    parts.peers.start()
    if config.broker is not None:
        parts.follow_brokers(config.broker.urls)
    await in_slices(core.variables.reroute(static_routes(config)), shell.data_bytes)
    await in_slices(recheck(core, parts.connections, parts.carrier.limit_rate, lapsed), shell.data_bytes)
    shell.perform(core.control.flush())
    tick.soon()


def _follow_rules(parts: Parts, book: RuleBook) -> None:
    """A neighbour for which the rules are others connects again, and defines everything anew."""
    core = parts.core
    now_ns = core.engine.mono_ns
    core.engine.permits_changed()
    for session in core.access.replace(book, core.variables, now_ns):
        connection = parts.connections.by_port.get(session.port)
        if connection is not None:
            farewell = Goodbye(reason=f"{core.name} has other rules for {session.name}; connect again")
            parts.connections.close(connection, "rules have changed", message=farewell)
    for reason in core.paths.recheck(now_ns)[:10]:
        log.error("a path is over: a rule denies it now", node=core.name, reason=reason)
