"""The act of the demo on Spark: a slow link, the route that leaves it, the alert, the report."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import pytest

from chappe.demo import loop
from chappe.demo.loop import Loop
from chappe.demo.state import State

PATIENCE_S = 400.0  # where all cores are busy Spark takes long to begin


@pytest.mark.timeout(PATIENCE_S + 60)
async def test_the_loop_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("START_S", "SETTLE_S", "ROUTE_S", "ALERT_S", "REPORT_S"):
        monkeypatch.setattr(loop, name, PATIENCE_S)
    monkeypatch.setattr(loop.tempfile, "gettempdir", lambda: str(tmp_path))
    state = State()
    state.begin()
    act = Loop(tmp_path, state)
    running = asyncio.create_task(act.run())
    async with asyncio.timeout(PATIENCE_S):
        while not (act.done or act.found):  # noqa: ASYNC110  it tells people, not tests
            await asyncio.sleep(0.2)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert act.verdict() == []
    told = [event.split("s  ", 1)[1] for event in state.events]
    order = ("a measuring mesh", "the link west–east is made slow", "measured: events go west → north → east",
             "later the pipeline's alert has come", "the report shows both")  # fmt: skip
    assert [any(words in line for words in order) for line in told] == [True] * len(order)
    assert [next(at for at, line in enumerate(told) if words in line) for words in order] == [0, 1, 2, 3, 4]
    text = (tmp_path / loop.REPORT).read_text()
    assert "made slow on purpose" in text
    assert "the route has left it" in text
    assert re.search("slow · (west → east|east → west)", text)


def test_where_it_is_left_out_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "missing", lambda: "")
    assert loop.wanted(None)
    assert loop.wanted(90)
    assert not loop.wanted(20)
    assert loop.how(20) == (
        "no pipeline in this demo (the demo lasts 20 s): with Java 17 and PySpark, make demo SECONDS=90 adds one"
    )
    monkeypatch.setattr(loop, "missing", lambda: "the pipeline needs Java 17")
    assert not loop.wanted(120)
    assert "(the pipeline needs Java 17)" in loop.how(120)
