"""Requests that take long are answered beside forwarding, not before it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from chappe.core.directory import BLOCK, COUNTERS, Directory, Entry
from chappe.runtime.config.reader import parse
from chappe.runtime.metrics import render
from chappe.runtime.node import Node
from chappe.wire import control
from tests.support.keys import Keys
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

VARIABLES = 4_000
DEV = '[node]\nname = "hub"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
RULES = """
[[rule]]
action = ["publish", "subscribe"]
pattern = "honest"
names = ["honest"]
[[rule]]
action = ["watch", "register"]
pattern = "plant/v7"
names = ["curious"]
[[rule]]
action = ["watch", "register"]
pattern = "plant/#"
names = ["owner"]
"""

T = TypeVar("T")


def fill(node: Node) -> None:
    """The node knows many variables."""
    port = node.engine.open_port(peer=True, retain=True)
    for number in range(VARIABLES):
        variable = control.Variable(0, "plant", f"v{number}", "float", 1, 1_000_000_000, 4, 0, 0, (), 0)
        assert node.core.variables.register(port, "owner", variable) is not None


async def served_during(
    honest: WireClient, work: Awaitable[T], counts: Callable[[], bool] = lambda: True
) -> tuple[T, int]:
    """The result of `work`, and how many round trips of another client were made meanwhile, while `counts`."""
    task = asyncio.ensure_future(work)
    trips = 0
    while not task.done():
        honest.publish("honest", b"x" * 100)
        await honest.flush()
        trips += counts() and not task.done()
    return await task, trips


async def test_a_listing_for_which_one_row_in_thousands_is_allowed_stops_nobody(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    async with running(keys.toml("n1", rules=RULES), dev=False) as (node,):
        fill(node)
        honest = await WireClient.open(node.url, tls=keys.context("honest"), name="honest")
        curious = await WireClient.open(node.url, tls=keys.context("curious"), name="curious")
        try:
            await honest.flush()
            listing, trips = await served_during(honest, curious.ask(control.List, what="variables"))
            assert [row["variable"] for row in listing.rows] == ["v7"]
            assert listing.total == 1
            assert trips >= 5
        finally:
            await honest.close()
            await curious.close()


async def test_a_listing_without_any_right_looks_at_nothing(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    async with running(keys.toml("n1", rules=RULES), dev=False) as (node,):
        fill(node)
        nobody = await WireClient.open(node.url, tls=keys.context("nobody"), name="nobody")
        try:
            for what in ("variables", "publishers", "topics", "publications"):
                listing = await nobody.ask(control.List, what=what)
                assert (listing.rows, listing.total) == ((), 0)
        finally:
            await nobody.close()


async def test_the_pages_of_a_listing_follow_each_other() -> None:
    async with running(DEV) as (node,):
        fill(node)
        client = await WireClient.open(node.url)
        try:
            found: list[str] = []
            while True:
                page = await client.ask(control.List, what="variables", start=len(found), limit=1_500)
                found += [row["variable"] for row in page.rows]
                if not page.rows or len(found) >= page.total:
                    break
                assert len(page.rows) <= 500
            assert sorted(found) == sorted(f"v{number}" for number in range(VARIABLES))
            again = await client.ask(control.List, what="variables", start=10, limit=5)
            assert [row["variable"] for row in again.rows] == found[10:15]
        finally:
            await client.close()


async def test_new_rules_are_asked_about_everything_without_stopping_anybody(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    toml = keys.toml("n1", rules=RULES)
    async with running(toml, dev=False) as (node,):
        fill(node)
        honest = await WireClient.open(node.url, tls=keys.context("honest"), name="honest")
        owner = await WireClient.open(node.url, tls=keys.context("owner"), name="owner")
        try:
            for number in range(0, VARIABLES, 100):
                await asyncio.gather(*(owner.watch(f"plant/v{number + at}") for at in range(100)))
            before = node.core.access.book
            _, trips = await served_during(
                honest, node.reload(parse(toml)), lambda: node.core.access.book is not before
            )
            assert trips >= 15
            assert not owner.closed.is_set()
            narrowed = toml + '[[rule]]\naction = "watch"\npattern = "plant/v3000"\ndeny = true\n'
            await node.reload(parse(narrowed))
            await owner.until(owner.closed.is_set)
            assert owner.refused is not None
            assert "plant/v3000" in owner.refused.reason
            await honest.flush()
        finally:
            await honest.close()
            await owner.close()


async def test_topics_that_a_client_publishes_to_are_asked_about_after_a_reload(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    toml = keys.toml("n1", rules=RULES.replace('pattern = "honest"', 'pattern = ["honest", "late/#"]'))
    async with running(toml, dev=False) as (node,):
        honest = await WireClient.open(node.url, tls=keys.context("honest"), name="honest")
        try:
            honest.publish("honest", b"")
            honest.publish("late/9", b"")
            await honest.flush()
            await node.reload(parse(toml))
            await honest.flush()
            await node.reload(parse(toml.replace(', "late/#"', "")))
            await honest.until(honest.closed.is_set)
            assert honest.refused is not None
            assert "late/9" in honest.refused.reason
        finally:
            await honest.close()


async def test_a_flood_of_requests_does_not_delay_those_of_others() -> None:
    async with running(DEV) as (node,):
        flood = await WireClient.open(node.url, name="flood")
        honest = await WireClient.open(node.url, name="honest")
        try:
            answers = [asyncio.ensure_future(flood.ask(control.Subscribe, pattern=f"t/{at}")) for at in range(3_000)]
            await asyncio.sleep(0)
            await flood.drain()
            await eventually(lambda: node.shell.behind)
            await honest.subscribe("mine")
            assert node.shell.behind
            await asyncio.gather(*answers)
        finally:
            await flood.close()
            await honest.close()


async def test_many_watches_of_one_variable_are_answered_bit_by_bit() -> None:
    async with running(DEV) as (node,):
        waiting = await WireClient.open(node.url, name="waiting")
        publisher = await WireClient.open(node.url, name="publisher")
        try:
            wait = {"publisher": "plant", "variable": "late", "wait_ns": 30_000_000_000}
            answers = [asyncio.ensure_future(waiting.ask(control.Watch, **wait)) for _ in range(1_000)]
            await eventually(lambda: next(s for s in node.core.sessions if s.name == "waiting").waiting == 1_000)
            await publisher.register("plant/late")
            assert node.core.busy
            assert all(isinstance(answer, control.Watching) for answer in await asyncio.gather(*answers))
        finally:
            await waiting.close()
            await publisher.close()


def test_names_chosen_to_meet_take_no_ids_in_a_row() -> None:
    directory = Directory(1)
    place = zlib.crc32(b"first") % (COUNTERS // BLOCK)
    other = next(f"n{at}" for at in range(10**7) if zlib.crc32(f"n{at}".encode()) % (COUNTERS // BLOCK) == place)
    numbers = []
    for at in range(500):
        number = directory.issue("first")
        assert number is not None
        numbers.append(number)
        directory.add(Entry(control.Variable(number, "first", f"v{at}", "int", 0, 1, 4, 0, 0, (), 0)))
    assert numbers == list(range(numbers[0], numbers[0] + 500))
    met = directory.issue(other)
    assert met is not None
    assert met not in numbers
    assert met != numbers[-1] + 1  # that would have been found by looking at all of them


async def test_the_longest_turn_of_the_loop_is_a_metric() -> None:
    async with running(DEV) as (node,):
        assert node.turns is not None
        snapshot = await node.snapshot(scrape=True)
        assert snapshot.turns is not None
        text = render(snapshot).decode()
        assert 'chappe_loop_turn_seconds_max{node="hub",since="start"}' in text
        assert 'chappe_loop_turn_seconds_bucket{le="0.005",node="hub"}' in text
        client = await WireClient.open(node.url)
        try:
            counters = await client.ask(control.List, what="counters")
            assert counters.rows[0]["loop_turn_max_ns"] > 0
        finally:
            await client.close()
