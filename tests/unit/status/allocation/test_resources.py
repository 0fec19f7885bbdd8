"""Loads of channels and routers by mode: exact, and zero again when all is released."""

from __future__ import annotations

import itertools
import random

import pytest

from chappe.status.allocation.latency import LatencyModel
from chappe.status.allocation.rates import NANO
from chappe.status.allocation.resources import Ledger, Usage, modes_of
from chappe.status.topology import Model
from chappe.wire.base import Variable

ALL = 0xFFFF


def variable(number: int = 1, rate: int = 100, options: int = 0) -> Variable:
    return Variable(number, "p", f"v{number}", "float", rate, 10**9, 3, options)


def ledger_of(*hops: tuple[str, str], bytes_per_s: int = 0, events_per_s: int = 0) -> Ledger:
    ledger = Ledger(LatencyModel(Model()))
    for a, b in hops:
        channel = ledger.channel(a, b)
        channel.present = channel.owned = True
        channel.capacity = bytes_per_s * NANO
        for name in (a, b):
            router = ledger.router(name)
            router.present = router.owned = True
            router.capacity = events_per_s * NANO
    return ledger


@pytest.mark.spec("GS-081", "GS-083")
def test_a_channel_carries_the_exact_rate_of_its_intervals_in_bytes() -> None:
    ledger = ledger_of(("A", "B"))
    fast = variable(rate=1000, options=1)  # one in a millisecond
    ledger.add(fast, {("A", "B"): {90: ALL}})
    ledger.add(fast, {("A", "B"): {240: ALL}})
    channel = ledger.channels["A", "B"]
    assert channel.events[0] == NANO * 1000 * 10 // 720
    assert channel.bytes[0] == channel.events[0] * 48
    assert ledger.routers["B"].events == channel.events
    assert ledger.routers["A"].events == [0] * 16


@pytest.mark.spec("GS-086")
def test_a_second_reservation_adds_only_where_the_set_grows() -> None:
    ledger = ledger_of(("A", "B"), ("B", "C"))
    one = variable()
    ledger.add(one, {("A", "B"): {2: ALL}})
    assert ledger.growth(one, {("A", "B"): {4: ALL}}).channels == ()
    growth = ledger.growth(one, {("A", "B"): {4: ALL}, ("B", "C"): {4: ALL}})
    assert [(channel.name, added[0]) for channel, added in growth.channels] == [("channel/B/C", 25 * NANO)]
    assert ledger.growth(one, {("A", "B"): {1: ALL}}).channels[0][1][0] == 50 * NANO


@pytest.mark.spec("GS-081")
def test_a_full_channel_and_a_full_router_say_what_is_missing() -> None:
    ledger = ledger_of(("A", "B"), bytes_per_s=4_800, events_per_s=150)
    ledger.add(variable(), {("A", "B"): {1: ALL}})
    assert ledger.blocked(ledger.growth(variable(2, 50), {("A", "B"): {1: ALL}})) is None
    blocked = ledger.blocked(ledger.growth(variable(2, 101, options=1), {("A", "B"): {1: 0b100}}))
    assert blocked is not None
    assert blocked.obstacle == "channel/A/B"
    assert "bandwidth of the channel A -> B" in blocked.reason
    assert "mode 2" in blocked.reason
    blocked = ledger.blocked(ledger.growth(variable(2, 51), {("A", "B"): {1: ALL}}))
    assert blocked is not None
    assert blocked.obstacle == "router/B"
    assert "51 more events/s in mode 0, 50 of 150 are free" in blocked.reason


def test_what_fills_a_capacity_exactly_fits() -> None:
    ledger = ledger_of(("A", "B"), events_per_s=100)
    thirds = {("A", "B"): {3: ALL}}
    for number in (1, 2, 3):
        assert ledger.blocked(ledger.growth(variable(number), thirds)) is None
        ledger.add(variable(number), thirds)
    assert ledger.blocked(ledger.growth(variable(4, rate=1), thirds)) is not None


@pytest.mark.spec("GS-081", "GS-114")
def test_loads_are_kept_by_mode_and_a_change_of_mode_may_bring_the_larger_of_both() -> None:
    ledger = ledger_of(("A", "C"), ("B", "C"), events_per_s=150)
    ledger.add(variable(1), {("A", "C"): {1: 0b01}})
    assert ledger.blocked(ledger.growth(variable(2, 50), {("B", "C"): {1: 0b10}})) is None
    blocked = ledger.blocked(ledger.growth(variable(2), {("B", "C"): {1: 0b10}}))
    assert blocked is not None
    assert blocked.obstacle == "router/C"
    assert "while modes 0 and 1 change" in blocked.reason
    # On one channel the two modes replace each other: each link carries one of them.
    assert ledger.blocked(ledger.growth(variable(2), {("A", "C"): {1: 0b10}})) is None


def test_a_variable_that_changes_its_rate_leaves_no_trace_of_the_old_one() -> None:
    ledger = ledger_of(("A", "B"))
    hop: Usage = {("A", "B"): {1: ALL}}
    ledger.add(variable(rate=100), hop)
    ledger.add(variable(rate=30, options=2), hop)
    assert ledger.channels["A", "B"].bytes[0] == 30 * 72 * NANO
    ledger.remove(1, hop)
    ledger.remove(1, hop)
    assert ledger.channels["A", "B"].bytes == [0] * 16
    assert ledger.routers["B"].events == [0] * 16


def test_what_is_reserved_in_any_order_can_be_released_in_any_other() -> None:
    chance = random.Random(7)
    names = "ABCDE"
    ledger = ledger_of(*((a, b) for a in names for b in names if a != b))
    held: list[tuple[Variable, Usage]] = []
    for _ in range(400):
        if held and chance.random() < 0.4:
            one, usage = held.pop(chance.randrange(len(held)))
            ledger.remove(one.variable_id, usage)
            continue
        one = variable(number := chance.randrange(1, 6), rate=(7, 30, 60, 100, 333)[number - 1])
        path = chance.sample(names, 3)
        usage = {
            hop: {chance.choice((1, 2, 3, 7, 90, 240)): chance.randrange(1, ALL + 1)}
            for hop in itertools.pairwise(path)
        }
        ledger.add(one, usage)
        held.append((one, usage))
    assert any(max(channel.bytes) for channel in ledger.channels.values())
    for one, usage in held:
        ledger.remove(one.variable_id, usage)
    assert ledger.carried == {}
    for channel in ledger.channels.values():
        assert (channel.bytes, channel.events, channel.peak, channel.top, channel.streams) == (
            [0] * 16,
            [0] * 16,
            0,
            0,
            {},
        )
    for router in ledger.routers.values():
        assert (router.events, router.peaks) == ([0] * 16, 0)


def test_rows_show_capacity_load_share_and_burst() -> None:
    ledger = ledger_of(("A", "B"), bytes_per_s=4_800, events_per_s=400)
    ledger.add(variable(1), {("A", "B"): {1: ALL}})
    ledger.add(variable(2), {("A", "B"): {10: 0b10}})
    rows = {row["resource"]: row for row in ledger.rows()}
    assert set(rows) == {"router/A", "router/B", "channel/A/B"}
    assert rows["router/B"]["load"] == (100.0, 110.0, *[100.0] * 14)
    assert rows["channel/A/B"]["share"] == 0.55
    assert rows["channel/A/B"]["burst"] == 2
    assert modes_of(0b1010) == [1, 3]
