"""What a member of the mesh reports of its links, and what others may add to it (MR-083, MR-079)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from chappe.events.member_links import Link
from chappe.machine import Effect
from chappe.measure.cost import Metrics
from chappe.measure.readings import Reading


class Measured(NamedTuple):
    """A link has a new reading."""

    link: Link
    reading: Reading
    advertised: bool  # whether the mesh gets a new cost because of it


class Reporter(Protocol):
    """Gets every reading of a node that reports what it measures."""

    def report(self, readings: Sequence[Measured], now_ns: int, wall_ns: int) -> list[Effect]:
        """What follows from the readings of one tick."""

    def lost(self, link: Link, now_ns: int) -> None:
        """A link is down."""

    def weigh(self, link: Link, own: Metrics | None) -> Metrics | None:
        """What was measured here, with what others have measured of the same link."""
