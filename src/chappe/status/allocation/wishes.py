"""One attempt of admission, and its two outcomes."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.graph.graph import Path
from chappe.status.allocation.resources import Blocked, Growth
from chappe.wire.base import Variable

UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Wish:
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
class Found:
    """Paths that can be had, how long the slowest takes by mode of the wish, and what they would add."""

    paths: tuple[Path, ...]
    latency_ns: dict[int, int]
    growth: Growth


def too_few(wish: Wish, have: int) -> Blocked:
    """The graph has not so many disjoint paths."""
    where = f"from {wish.source} to {wish.target}"
    if wish.security:
        where += f" over channels of security {wish.security}"
    if wish.avoid:
        where += f" without {', '.join(sorted(wish.avoid))}"
    if have == 0:
        return Blocked("", f"{'security' if wish.security else 'redundancy'}: no path leads {where}")
    paths = "are no two disjoint paths" if have == 1 else f"are only {have} disjoint paths"
    return Blocked("", f"redundancy: there {paths} {where}, {wish.redundancy} are wanted")


def too_slow(wish: Wish, reached_ns: int, obstacle: str = "") -> Blocked:
    """The bound is missed; `obstacle` is named if it is a load that makes it so."""
    paths = "a path" if wish.redundancy == 1 else f"{wish.redundancy} disjoint paths"
    reason = (
        f"latency: {paths} from {wish.source} to {wish.target} within {wish.bound_ns / 1e6:.6g} ms cannot be had, "
        f"the best takes {reached_ns / 1e6:.6g} ms"
    )
    if obstacle:
        reason += f" at the present load of {obstacle}"
    return Blocked(obstacle, reason, excess_ns=reached_ns - wish.bound_ns)
