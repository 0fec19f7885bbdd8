"""Quality of service as a node needs it: what a watch asks for, and what the engine needs of it."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.status.allocation.rates import every_of, interval_of
from chappe.wire.constants import MODES
from chappe.wire.control import Grant, Qos, Variable, Watch

LEVELS = ("plain", "authentic", "encrypted")


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one path in the status table: one entry for all modes, or 16."""

    intervals_ns: list[int]
    priorities: list[int]
    modes: int


def terms_of(watch: Watch) -> tuple[Qos, ...]:
    """What a watch asks for; without `qos`: its interval, by any one path."""
    return watch.qos or (Qos(interval_ns=watch.interval_ns, priority=watch.priority),)


def grants_of(grants: tuple[Grant | None, ...], modes: int) -> Terms:
    """What was granted, for the engine: nothing in a mode without a grant."""
    if len(grants) == 1 and grants[0] is not None:
        return Terms([grants[0].interval_ns], [grants[0].priority], modes)
    if len(grants) != MODES:
        raise ValueError(f"{len(grants)} grants; there is one for all modes, or one for each of {MODES}")
    present = sum(1 << mode for mode, grant in enumerate(grants) if grant is not None)
    return Terms(
        [grant.interval_ns if grant else 0 for grant in grants],
        [grant.priority if grant else 0 for grant in grants],
        modes & present,
    )


def local_grants(
    variable: Variable, wanted: tuple[Qos, ...], security: int, whatever: bool = False
) -> tuple[Grant | None, ...] | str:
    """What a node without a broker gives: the interval, one path, and no promise of latency (0).

    The reason if that is too few, or if the path is not as secure as asked for: `security` is what its links give.
    `whatever`: grant what there is.
    """
    granted: list[Grant | None] = []
    for qos in wanted:
        least = min(qos.redundancy, qos.worst_redundancy or qos.redundancy)
        if least > 1 and not whatever:
            return f"no broker manages this node: there is one path, not {least} disjoint ones"
        if qos.security > security and not whatever:
            return (
                f"security: the path has level {security} ({LEVELS[security]}), not {qos.security} "
                f"({LEVELS[qos.security]}), as far as this node without a broker knows"
            )
        every = every_of(variable, qos.interval_ns)
        granted.append(Grant(interval_of(variable, every), every, 0, 1, qos.priority))
    return tuple(granted)
