"""The latency model of admission."""

from __future__ import annotations

import pytest

from chappe.status.allocation.latency import LatencyModel
from chappe.status.topology import Model


def test_an_idle_path_takes_clients_routers_and_channels() -> None:
    model = LatencyModel(Model())
    assert model.path([(0, 1000), (0, 1000), (0, 1000)], [1_000_000, 2_000_000]) == 150_000 + 3 * 60_000 + 3_000_000


def test_load_adds_in_proportion_to_capacity_up_to_full() -> None:
    model = LatencyModel(Model())
    assert [model.router(load, 1000) for load in (0, 250, 1000, 5000)] == [60_000, 110_000, 260_000, 260_000]
    assert model.router(10**18, 0) == 60_000


@pytest.mark.parametrize(("hops", "events_per_ms"), [(1, 40.0), (3, 80.0), (7, 160.0)])
def test_the_model_measured_by_the_source_is_one_of_its_settings(hops: int, events_per_ms: float) -> None:
    """rd + sum(lbd + er / k) with rd = 0.419 ms, lbd = 0.227 ms, k = 210."""
    capacity = 1_000.0  # events/ms
    model = LatencyModel(Model(reference_us=419.0, router_us=227.0, loaded_us=1000 * capacity / 210))
    took = model.path([(round(events_per_ms * 1e6), round(capacity * 1e6))] * hops, [0] * (hops - 1))
    assert took / 1e6 == pytest.approx(0.419 + hops * (0.227 + events_per_ms / 210), abs=1e-5)
