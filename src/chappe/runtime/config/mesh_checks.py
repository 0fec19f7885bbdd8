"""What `[mesh]` must satisfy beyond the types of its keys: units, cost profiles and formulas, publications."""

from __future__ import annotations

from collections.abc import Iterator

from chappe.core.sections import Config, Mesh
from chappe.errors import ConfigError
from chappe.linkstate.units import checked_name, parse_unit
from chappe.security.patterns import AddressPattern, PatternError
from chappe.wire.addresses import ADDRESS_LIMIT, INBOX_PART


def mesh_problems(config: Config) -> Iterator[str]:
    """One line `key: reason` for each thing that is wrong."""
    if config.report is not None and config.measure is None and config.mesh is None:
        yield "report: nothing is measured that could be reported; add [measure] or [mesh]"
    if config.mesh is None:
        return
    if config.topic_route:
        yield "topic_route: in a mesh events find their ways by themselves; remove [[topic_route]] or [mesh]"
    if config.manages is not None:
        yield "mesh: a broker forwards no events; remove [mesh] or [manages]"
    if len(config.address.encode()) > ADDRESS_LIMIT - INBOX_PART:
        yield f"mesh.unit: with the name of the node it has at most {ADDRESS_LIMIT - INBOX_PART} bytes"
    try:
        parse_unit(config.mesh.unit)
        checked_name(config.node.name, "node")
    except ConfigError as error:
        yield f"mesh.unit: {error}"
    yield from _units(config)
    yield from _profiles(config.mesh)
    for at, pattern in enumerate(config.mesh.publications):
        try:
            AddressPattern.address(pattern)
        except PatternError as error:
            yield f"mesh.publications[{at}]: {error}"


def _units(config: Config) -> Iterator[str]:
    from chappe.events.member_links import misplaced

    assert config.mesh is not None
    for unit in config.mesh.units:
        try:
            parse_unit(unit)
        except ConfigError as error:
            yield f"mesh.units: {error}"
    wrong = misplaced(tuple(config.mesh.units.items()), config.node.name, config.mesh.unit) if config.node.name else ""
    if wrong:
        yield f"mesh.units: {wrong}; this is the node itself"


def _profiles(mesh: Mesh) -> Iterator[str]:
    from chappe.measure import cost, formula  # a node without a mesh needs no NumPy

    known = {*cost.PROFILES, *mesh.formula}
    for name, text in mesh.formula.items():
        try:
            formula.parse(text)
        except ValueError as error:
            yield f"mesh.formula.{name}: {error}"
    named = [("mesh.profile", mesh.profile)]
    named += [(f"mesh.topic[{at}].profile", each.profile) for at, each in enumerate(mesh.topic) if each.profile]
    for key, profile in named:
        if profile not in known:
            yield f"{key}: there is no profile {profile!r} (profiles: {', '.join(sorted(known))})"
    for at, each in enumerate(mesh.topic):
        try:
            AddressPattern.address(each.pattern)
        except PatternError as error:
            yield f"mesh.topic[{at}].pattern: {error}"
        if not each.profile and not each.needs:
            yield f"mesh.topic[{at}]: give `profile`, `needs`, or both"
