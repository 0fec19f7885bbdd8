"""The settings of a member of the mesh from `[mesh]`, `[measure]` and `[report]` of a node's file."""

from __future__ import annotations

from chappe.core.sections import Measure, Mesh, Report
from chappe.events.member_settings import MemberSettings
from chappe.linkstate.settings import Settings as MapSettings
from chappe.measure.monitor import Settings as ReportSettings
from chappe.measure.readings import Settings as MeasureSettings

SECOND = 1_000_000_000
REFRESHES = 3  # without one in so many times it is forgotten


def settings_of(mesh: Mesh | None, measure: Measure, capabilities: tuple[str, ...] = ()) -> MemberSettings:
    """How the member behaves; without `[mesh]` it measures and does nothing else."""
    given = mesh or Mesh()
    base_ns = round(measure.interval_s * SECOND)
    factors = tuple(measure.factors)
    return MemberSettings(
        mesh=mesh is not None,
        measures=measure.on,
        bandwidth=measure.bandwidth,
        costs=given.publish,
        factors=(*factors, "deviation") if "latency" in factors else factors,
        places=tuple((unit, names) for unit, names in given.units.items()),
        profile=given.profile,
        profiles=tuple((each.pattern, each.profile) for each in given.topic if each.profile),
        needs=tuple((each.pattern, tuple(sorted(set(each.needs)))) for each in given.topic if each.needs),
        measure=_measured(measure, base_ns, given),
        map=MapSettings(
            performance=given.performance,
            interval_ns=base_ns,
            threshold=given.threshold,
            floor_ms=given.floor_ms,
            certainty=given.certainty,
            gain=given.gain,
            gain_ms=given.gain_ms,
            hold_down=given.hold_down,
            capabilities=tuple(sorted({*given.capabilities, *capabilities})),
            refresh_ns=round(given.refresh_s * SECOND),
            lifetime_ns=round(REFRESHES * given.refresh_s * SECOND),
        ),
    )


def report_settings(section: Report) -> ReportSettings:
    """How a node reports what it measures."""
    return ReportSettings(
        realm=section.realm, user_group=section.user_group, aggregator=section.aggregator, silence_s=section.silence_s,
        advice=section.advice,
    )  # fmt: skip


def _measured(measure: Measure, base_ns: int, mesh: Mesh) -> MeasureSettings:
    longest_ns = max(60 * SECOND, base_ns)
    return MeasureSettings(
        base_ns=base_ns,
        longest_ns=longest_ns,
        adaptive=measure.adapt,
        synchronous=measure.synchronous,
        window=measure.window,
        profile=mesh.profile,
        timeout_ns=min(SECOND, max(base_ns, SECOND // 10)),
    )
