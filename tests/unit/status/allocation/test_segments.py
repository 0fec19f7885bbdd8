"""Pieces of paths between clouds: what a leaf reserves for its own routers, and its share of the bound."""

from __future__ import annotations

import pytest

from chappe.status.allocation.allocation import Route
from chappe.status.topology import Model
from chappe.wire.base import Grant
from tests.support.allocations import MS, loads, network, variable


def grants(latency_ns: int = 0, bound_ns: int = 0, every: int = 1) -> tuple[Grant | None, ...]:
    return (Grant(10 * MS * every, every, latency_ns, 1, 3, bound_ns),) * 16


@pytest.mark.spec("GS-088")
def test_a_segment_loads_its_first_router_from_outside_and_no_channel_of_others() -> None:
    allocator = network("A-B", "B-C")
    segment = Route(("A", "B", "C"), 0, 0xFFFF, before="X", after="Y")
    assert allocator.reserve("k", variable(), [segment], grants()) is None
    assert loads(allocator) == {
        "router/A": 100.0,
        "router/B": 100.0,
        "router/C": 100.0,
        "channel/A/B": 2400.0,
        "channel/B/C": 2400.0,
    }
    # A second subscription of the variable that comes in the same way costs nothing, one by another way does.
    assert allocator.reserve("l", variable(), [Route(("A",), 0, 0xFFFF, before="X", after="Z")], grants()) is None
    assert loads(allocator)["router/A"] == 100.0
    assert allocator.reserve("m", variable(), [Route(("A",), 1, 0xFFFF, before="W", after="Z")], grants()) is None
    assert loads(allocator)["router/A"] == 200.0
    for key in "klm":
        assert allocator.release(key)
    assert loads(allocator) == {}
    assert len(allocator.loads()) == 3 + 4  # no trace of routers of other clouds


@pytest.mark.spec("GS-088")
def test_a_segment_is_refused_by_the_capacity_of_its_first_router() -> None:
    allocator = network("A-B", events_per_s=150)
    assert allocator.reserve("1", variable(1), [Route(("A",), 0, 0xFFFF, before="X", after="Y")], grants()) is None
    answer = allocator.reserve("2", variable(2), [Route(("A", "B"), 0, 0xFFFF, before="X")], grants())
    assert answer is not None
    assert answer.obstacle == "router/A"
    assert allocator.reserve("3", variable(2), [Route(("A", "B"), 0, 0xFFFF, before="X")], grants(every=2)) is None


@pytest.mark.spec("GS-082", "GS-084")
def test_a_segment_keeps_its_share_of_the_bound() -> None:
    """The whole path takes 6 ms unloaded and may take 9: a segment of 2 ms may take 3."""
    allocator = network("A-B:2", "C-B:2", model=Model(reference_us=0, router_us=0, loaded_us=5_000))
    segment = Route(("A", "B"), 0, 0xFFFF, before="X", after="Y")
    assert allocator.reserve("k", variable(1), [segment], grants(6 * MS, 9 * MS)) is None  # 2 routers at a tenth: 1 ms
    answer = allocator.reserve("l", variable(2), [Route(("C", "B"), 0, 0xFFFF, before="X")], grants())
    assert answer is not None
    assert answer.obstacle == "router/B"
    assert "subscription k" in answer.reason
    late = allocator.reserve("m", variable(3), [segment], grants(6 * MS, 7 * MS))
    assert late is not None
    assert "share of the bound" in late.reason
    assert allocator.release("k")
    assert allocator.reserve("l", variable(2), [Route(("C", "B"), 0, 0xFFFF, before="X")], grants()) is None
