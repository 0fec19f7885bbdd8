"""What /metrics shows of the links of a member."""

from __future__ import annotations

from chappe.events import rows
from chappe.events.member import Member
from chappe.runtime.metrics import LinkSample


def samples(member: Member) -> list[LinkSample]:
    """One sample a link."""
    found = []
    for link in member.links:
        row = rows.measured(member, link)
        found.append(LinkSample(link.role, link.name, {
            "latency_seconds": row["mean_ms"] / 1e3, "deviation_seconds": row["deviation_ms"] / 1e3,
            "jitter_seconds": row["jitter_ms"] / 1e3, "loss_ratio": row["loss"],
            "bandwidth_bytes": row["bandwidth_bps"], "cost": row["cost"],
        }))  # fmt: skip
    return found
