"""The paths that one attempt of admission asks for, and its two outcomes."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.graph.graph import Path
from chappe.status.allocation.resources import Blocked, Growth
from chappe.wire.base import Variable

UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class PathRequest:
    """What one attempt asks for, in the modes of a mask."""

    variable: Variable
    source: str
    target: str
    modes: int
    every: int
    redundancy: int
    bound_ns: int  # 0: none
    security: int
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """Paths that can be had, how long the slowest takes by mode of the request, and what they would add."""

    paths: tuple[Path, ...]
    latency_ns: dict[int, int]
    growth: Growth


def too_few(request: PathRequest, have: int) -> Blocked:
    """The graph has not so many disjoint paths."""
    where = f"from {request.source} to {request.target}"
    if request.security:
        where += f" over channels of security {request.security}"
    if request.avoid:
        where += f" without {', '.join(sorted(request.avoid))}"
    if have == 0:
        return Blocked("", f"{'security' if request.security else 'redundancy'}: no path leads {where}")
    paths = "are no two disjoint paths" if have == 1 else f"are only {have} disjoint paths"
    return Blocked("", f"redundancy: there {paths} {where}, {request.redundancy} are wanted")


def too_slow(request: PathRequest, reached_ns: int, obstacle: str = "") -> Blocked:
    """The bound is missed; `obstacle` is named if it is a load that makes it so."""
    paths = "a path" if request.redundancy == 1 else f"{request.redundancy} disjoint paths"
    reason = (
        f"latency: {paths} from {request.source} to {request.target} within {request.bound_ns / 1e6:.6g} ms "
        f"cannot be had, the best takes {reached_ns / 1e6:.6g} ms"
    )
    if obstacle:
        reason += f" at the present load of {obstacle}"
    return Blocked(obstacle, reason, excess_ns=reached_ns - request.bound_ns)
