"""A publisher at managed routers changes the rate of a variable while it is published (GS-073)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import chappe
from chappe.errors import RefusedError
from tests.support.cloud import cloud
from tests.support.nodes import eventually

STEP = 20_000_000  # on the grids of 100, 50 and 25 a second


@pytest.mark.spec("GS-073")
async def test_a_stream_goes_on_while_its_rate_changes(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, "ab", "bc") as made,
        chappe.connect(made.url("a"), name="meter") as meter,
        chappe.connect(made.url("c"), name="far") as far,
        chappe.connect(made.url("a"), name="near") as near,
        chappe.connect(made.url("c"), name="far.half") as far_half,
        chappe.connect(made.url("a"), name="near.half") as near_half,
        chappe.connect(made.url("b"), name="odd") as odd,
    ):
        speed = await meter.register("plant", "speed", rate=100)
        number = speed.id
        every = [await client.watch("plant", "speed") for client in (far, near)]
        halves = [
            await client.watch("plant", "speed", qos=chappe.Qos(interval=0.04)) for client in (far_half, near_half)
        ]
        thirds = await odd.watch("plant", "speed", qos=chappe.Qos(interval=0.05))
        assert [watch.granted[0].every for watch in (*halves, thirds)] == [4, 4, 5]
        start = time.time_ns() // (200 * STEP) * 200 * STEP
        sent = 0

        async def stream() -> None:
            nonlocal sent
            while True:
                assert speed.publish(float(sent), created=start + sent * STEP)
                sent += 1
                await asyncio.sleep(0.001)

        streaming = asyncio.create_task(stream())
        try:
            for rate in (50, 100, 50, 100, 50):
                before = sent
                assert await meter.register("plant", "speed", rate=rate) is speed
                assert speed.id == number
                assert speed.rate == (1, 1_000_000_000 // rate)
                await eventually(lambda before=before: sent > before + 20)  # type: ignore[misc]
        finally:
            streaming.cancel()
        assert [watch.granted[0].every for watch in (*halves, thirds)] == [2, 2, 2]
        assert thirds.granted[0].interval == 0.04, "0.05 s rounded down to what there is now"
        await eventually(lambda: all(watch.updates == sent for watch in every))
        await eventually(lambda: all(watch.updates == -(-sent // 2) for watch in halves))
        for watch in every:
            assert [event.value for event in watch.take_nowait()] == [float(n) for n in range(sent)]
        for watch in halves:
            assert [event.value for event in watch.take_nowait()] == [float(n) for n in range(0, sent, 2)]
        with pytest.raises(RefusedError, match="other properties"):
            await meter.register("plant", "speed", rate=50, type=int)
        assert speed.type == "float"
        thirds.take_nowait()
        for more in range(sent, sent + 20):
            speed.publish(float(more), created=start + more * STEP)
        wanted = [float(more) for more in range(sent, sent + 20) if more % 2 == 0]
        got: list[float] = []
        while len(got) < len(wanted):
            got.append((await asyncio.wait_for(anext(thirds), 30)).value)
        assert got == wanted
