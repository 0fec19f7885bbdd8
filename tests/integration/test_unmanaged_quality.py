"""What a node without a broker grants: nothing that nobody can promise."""

from __future__ import annotations

from pathlib import Path

import pytest

import chappe
from chappe.errors import QosError
from tests.support.nodes import running

TCP = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


async def test_a_latency_that_nobody_promises_is_named_so() -> None:
    async with running(TCP) as (node,), chappe.connect(node.url, name="viewer") as viewer:
        await viewer.register("plant", "speed", rate=10)
        watch = await viewer.watch("plant", "speed", qos=chappe.Qos(latency=1e-9))
        assert watch.granted[0].latency is None


async def test_security_that_no_link_gives_is_refused() -> None:
    async with running(TCP) as (node,), chappe.connect(node.url, name="viewer") as viewer:
        await viewer.register("plant", "speed", rate=10)
        for level in (1, 2):
            with pytest.raises(QosError, match=f"security: the path has level 0.*not {level}") as refused:
                await viewer.watch("plant", "speed", qos=chappe.Qos(security=level))
            assert refused.value.best[0].latency is None
        await viewer.watch("plant", "speed", qos=chappe.Qos(security=0))


async def test_security_is_the_least_of_both_links(tmp_path: Path) -> None:
    local = f'[[listen]]\nurl = "unix://{tmp_path}/node.sock"\n'
    async with running(local + TCP) as (node,):
        inside, outside = str(node.addresses[0]), str(node.addresses[1])
        async with (
            chappe.connect(inside, name="one") as one,
            chappe.connect(inside, name="two") as two,
            chappe.connect(outside, name="three") as three,
        ):
            await one.register("plant", "speed", rate=10)
            await three.register("far", "speed", rate=10)
            watch = await two.watch("plant", "speed", qos=chappe.Qos(security=2))
            assert watch.granted[0].latency is None
            with pytest.raises(QosError, match="security"):
                await two.watch("far", "speed", qos=chappe.Qos(security=1))
