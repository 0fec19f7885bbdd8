"""Probes under way, and which of the last ones of each link got no answer (MR-066)."""

from __future__ import annotations

from chappe.measure._probes import Probes

__all__ = ["NEVER", "Probes"]

NEVER = 1 << 62
