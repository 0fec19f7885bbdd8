"""Shares of the loop: who uses up its time waits, others do not; handshakes by host, requests by identity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

import pytest
from structlog.testing import capture_logs

from chappe.core.accounts import BURST_NS, PRUNE_AT, REPAID, Accounts
from chappe.links.meter import Meter
from chappe.runtime.background import Pacer
from chappe.runtime.gate import Gate
from tests.support.nodes import eventually

MALLORY, HONEST = ("client", "mallory"), ("client", "honest")
HOST = ("host", "192.0.2.66")
MS = 1_000_000


class Data:
    """Bytes that a node forwarded, as many as the test says."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self) -> int:
        self.bytes += 1 << 20
        return self.bytes


def test_time_is_counted_for_each_holder_and_given_back() -> None:
    accounts = Accounts()
    burst = BURST_NS["client"]
    assert not accounts.charge(MALLORY, burst, 0)
    with capture_logs() as logs:
        assert accounts.charge(MALLORY, 1, 0)
        assert accounts.charge(MALLORY, MS, 0)
    assert [(line["kind"], line["who"]) for line in logs] == [MALLORY]
    assert accounts.overdrawn(MALLORY, 0)
    assert not accounts.overdrawn(HONEST, 0)
    repaid_ns = round((0.1 * burst + MS) / REPAID) + MS
    assert accounts.overdrawn(MALLORY, repaid_ns // 2)
    assert not accounts.overdrawn(MALLORY, repaid_ns)
    seconds, exceeded = accounts.shown()[MALLORY]
    assert seconds == pytest.approx(burst / 1e9, rel=0.01)
    assert exceeded == 1


def test_accounts_that_owe_least_are_forgotten() -> None:
    accounts = Accounts()
    accounts.charge(MALLORY, BURST_NS["client"] + 1, 0)
    for number in range(10 * PRUNE_AT):  # each from an address of its own
        accounts.charge(("host", str(number)), 1, number)
        assert len(accounts._accounts) <= PRUNE_AT
    assert accounts.overdrawn(MALLORY, 10 * PRUNE_AT)


async def begun(gate: Gate, host: str, count: int) -> list[asyncio.Event]:
    """Handshakes of a host that wait for their turn."""
    events = [asyncio.Event() for _ in range(count)]
    for event in events:
        assert gate.meter(host) is None
        gate.wait(host, _setter(event))
    return events


def _setter(event: asyncio.Event) -> Callable[[Meter], None]:
    return lambda meter: event.set()


async def busy(pacer: Pacer) -> None:
    await eventually(lambda: pacer.busy)


async def test_handshakes_of_a_host_that_used_up_its_time_wait_and_those_of_others_do_not() -> None:
    accounts, pacer = Accounts(), Pacer(Data())
    gate = Gate(accounts, pacer)
    try:
        await busy(pacer)
        meter = gate.meter(HOST[1])
        assert meter is not None
        meter.add(BURST_NS["host"] + 1)
        flood = await begun(gate, HOST[1], 3)
        other = gate.meter("192.0.2.7")
        assert other is not None
        async with asyncio.timeout(30):
            for event in flood:
                await event.wait()
    finally:
        gate.stop()


async def test_a_handshake_that_cannot_begin_does_not_keep_the_others_waiting() -> None:
    accounts, pacer = Accounts(), Pacer(Data())
    gate = Gate(accounts, pacer)
    try:
        await busy(pacer)
        began = asyncio.Event()

        def fails(meter: Meter) -> None:
            raise OSError("no descriptor")

        gate.wait(HOST[1], fails)
        gate.wait(HOST[1], _setter(began))
        async with asyncio.timeout(30):
            await began.wait()
    finally:
        gate.stop()


def test_whoever_is_charged_again_after_a_long_time_is_not_overdrawn_by_what_was_repaid() -> None:
    accounts = Accounts()
    assert accounts.charge(MALLORY, BURST_NS["client"] + 1, 0)
    assert not accounts.charge(MALLORY, 1, round(2 * BURST_NS["client"] / REPAID))


async def test_an_idle_node_lets_everybody_in_at_once() -> None:
    accounts, pacer = Accounts(), Pacer(lambda: 0)
    gate = Gate(accounts, pacer)
    meter = gate.meter(HOST[1])
    assert meter is not None
    meter.add(10 * BURST_NS["host"])
    assert gate.meter(HOST[1]) is not None


async def test_a_proven_identity_pays_for_its_handshake_and_its_host_does_not() -> None:
    accounts, pacer = Accounts(), Pacer(Data())
    gate = Gate(accounts, pacer)
    await busy(pacer)
    for number in range(1_000):  # clients behind one address
        meter = gate.meter(HOST[1])
        assert meter is not None
        meter.add(MS)
        await gate.proven(HOST[1], ("client", f"meter-{number}"), meter)
        meter.add(MS)  # the rest of the handshake
    assert not accounts.overdrawn(HOST, 0)
    assert accounts.shown().get(HOST, (0, 0))[0] == 0


async def test_an_identity_that_used_up_its_time_waits_after_it_was_proven() -> None:
    accounts, pacer = Accounts(), Pacer(Data())
    gate = Gate(accounts, pacer)
    try:
        await busy(pacer)
        accounts.charge(MALLORY, BURST_NS["client"] + MS, perf_counter_ns())
        meter = gate.meter(HOST[1])
        assert meter is not None
        meter.add(MS)
        waiting = asyncio.ensure_future(gate.proven(HOST[1], MALLORY, meter))
        await asyncio.sleep(0)
        assert not waiting.done()
        async with asyncio.timeout(30):
            await waiting
        assert accounts.shown()[HOST][0] > 0
    finally:
        gate.stop()


async def test_a_meter_measures_the_steps_of_a_coroutine_and_changes_nothing_else() -> None:
    pieces: list[int] = []
    meter = Meter(pieces.append)

    async def work() -> str:
        await asyncio.sleep(0)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "cancelled"
        return "done"

    async def outer() -> str:
        return await meter.measured(work())

    task = asyncio.ensure_future(outer())
    await asyncio.sleep(0.01)
    task.cancel()
    assert await task == "cancelled"
    assert len(pieces) == 3
    assert meter.total_ns == sum(pieces)

    async def fails() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        await meter.measured(fails())
