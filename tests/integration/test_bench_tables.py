"""Table 1 on real sockets: nodes measure links that a relay makes long."""

from __future__ import annotations

import os

import pytest

from bench import tables_real
from bench.namespaces import Namespaces
from chappe.errors import ChappeError

DELAYS_MS = (5.0, 40.0)
INTERVALS_MS = (50, 250)


def check(figures: tables_real.Figures) -> None:
    assert set(figures) == {(delay_ms, interval_ms) for delay_ms in DELAYS_MS for interval_ms in INTERVALS_MS}
    for (delay_ms, interval_ms), figure in figures.items():
        assert figure.rounds >= 0.5 * tables_real.LEAST_S * 1e3 / interval_ms / 2  # two probes may share an evaluation
        assert delay_ms <= figure.latency_ms < delay_ms + 30  # a busy machine adds some
        assert figure.cost >= figure.latency_ms


@pytest.mark.spec("MR-121")
def test_cost_against_interval_through_a_relay() -> None:
    check(tables_real.on_loopback(DELAYS_MS, INTERVALS_MS))


def test_cost_against_interval_between_namespaces() -> None:
    if Namespaces.obstacle():
        with pytest.raises(ChappeError, match="no network namespaces"):
            tables_real.in_namespaces(DELAYS_MS, INTERVALS_MS)
        return
    check(tables_real.in_namespaces(DELAYS_MS, INTERVALS_MS))
    assert not [name for name in os.listdir("/run/netns") if name.startswith(f"chappe-bench-{os.getpid()}")]
