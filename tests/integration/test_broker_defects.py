"""A defect in the state machine of a broker costs its term, never its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.wire import management
from chappe.wire.base import Done, Failed
from tests.support.brokerprocess import connected, counters, leads, node_of, role, toml
from tests.support.nodes import eventually, free_port


async def test_a_defect_ends_the_term_and_the_store_knows_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = counters(monkeypatch)
    async with node_of(toml(0, [free_port()], str(tmp_path / "west.db"))) as node:
        await eventually(lambda: leads(node))
        async with connected(node.url) as operator:
            assert isinstance(await operator.ask(management.AddRouter, name="r1"), Done)
            brokers[-1].count = 99  # half changed, and then:
            monkeypatch.setattr(brokers[-1], "_count", lambda *_: 1 // 0)
            failed = await operator.ask(management.AddRouter, name="r2")
            assert isinstance(failed, Failed)
            assert failed.code == "unavailable"
            await eventually(lambda: leads(node) and role(node).machine.epoch == 2)
            assert brokers[-1].count == 1
            assert isinstance(await operator.ask(management.AddRouter, name="r2"), Done)


async def test_a_defect_while_nobody_asks_ends_the_term_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = counters(monkeypatch)
    async with node_of(toml(0, [free_port()], str(tmp_path / "west.db"))) as node:
        await eventually(lambda: leads(node))
        monkeypatch.setattr(brokers[0], "tick", lambda now_ns: 1 // 0)
        await eventually(lambda: leads(node) and role(node).machine.epoch == 2)
        await eventually(lambda: brokers[-1].ticks > 3)
