"""The public API as type checkers and `help` see it: real signatures, the same for both clients."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import chappe
from chappe.client import arguments, connecting
from chappe.client import client as asynchronous
from chappe.client.groups import Group

BLOCKING = chappe.sync.Client
ORIGINS = {
    "watch": (arguments.WatchArguments, 3),
    "watch_many": (arguments.WatchManyArguments, 2),
    "subscribe": (arguments.SubscribeArguments, 2),
    "register": (arguments.RegisterArguments, 4),
    "register_many": (arguments.RegisterManyArguments, 4),
    "group": (arguments.GroupArguments, 2),
    "measure": (arguments.MeasureArguments, 2),
    "open_link": (arguments.OpenLinkArguments, 2),
}
GOOD = """
import asyncio
from pathlib import Path

import chappe, chappe.sync

async def good() -> None:
    async with chappe.connect("tcp://127.0.0.1:7400", name="a", timeout_s=2.0) as client:
        watch = await client.watch("pmu", "frequency", interval=0.1)
        value: object = watch.value
        answer = await client.request("a", b"x", timeout_s=1.0, content_type="text/plain")
        body: bytes = answer.body
        await client.publish_wait("a", body, priority=1, properties={"x": 1})
        taken: bool = client.publish("a", body)
        archive: str = await client.publish("a", body, durable=True)
        variable = await client.register("pmu", "frequency", rate=30, type="float", slowest=1.0)
        accepted: bool = variable.publish(50.0)
        both = await client.register_many("pmu", ["a", "b"], rate=30)
        count: int = both.publish_array([1.0, 2.0])
        await client.flush(timeout_s=1.0)
        stream = await client.watch_many([("pmu", "a"), ("pmu", "b")], qos=chappe.Qos(interval=0.1, redundancy=2))
        async for values in stream.batches(100):
            latency: int = values[0].latency_ns
        await stream.unwatch()
        subscription = await client.subscribe("a/#", group="g", on_full="block", since=0)
        async for message in subscription:
            await message.respond(b"y", priority=1, content_type="text/plain")
        await subscription.unsubscribe()
        group = await client.group("phases", qos={0: chappe.Qos(interval=0.1)}, history=2)
        await group.add("pmu", "a", latency=0.05, wait_s=1.0)
        advertisement = await client.advertise("a/+")
        await client.withdraw(advertisement)
        rows: list[dict[str, object]] = [dict(row) for row in await client.list("variables", limit=10)]
        async with client.cell("fr.paris", "fr.louvre") as cell:
            sent: chappe.Sent = await cell.send("fr.lyon", Path("file"), source="fr.paris", progress=print)
            size: int = sent.size
            async for arrived in cell:
                source: str = arrived.source
                saved: int = await arrived.save("file")
                async for piece in arrived:
                    size += len(piece)
            cell.multicast("fr.*", b"x")
            await cell.add_name("fr.nice")

with chappe.sync.connect("tcp://127.0.0.1:7400", wait_s=1.0) as blocking:
    blocking.watch("pmu", "frequency", interval=0.1)
    for event in blocking.subscribe("a/#", group="g"):
        blocking.respond(event, event.body, priority=2)
    blocking.register("pmu", "frequency", rate=30).publish(50.0)
    blocking.flush(timeout_s=1.0)
    blocking.request("a", b"x", timeout_s=1.0)
"""


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    for name, method in inspect.getmembers(BLOCKING, inspect.isfunction):
        if name.startswith("_") or name == "list":
            continue
        assert _arguments(method) == _arguments(getattr(asynchronous.Client, name)), name
    assert list(inspect.signature(chappe.sync.connect).parameters) == list(inspect.signature(chappe.connect).parameters)
    assert list(inspect.signature(BLOCKING).parameters) == list(inspect.signature(chappe.connect).parameters)


@pytest.mark.parametrize("name", ORIGINS)
def test_the_shared_arguments_are_those_of_the_asyncio_client(name: str) -> None:
    given, first = ORIGINS[name]
    expected = list(inspect.signature(getattr(asynchronous.Client, name)).parameters.values())[first:]
    assert given.__annotations__.keys() == {each.name for each in expected}  # those of its bases included
    assert all(each.kind is each.KEYWORD_ONLY for each in expected)


def test_the_arguments_of_connect_and_of_members_are_those_of_the_asyncio_client() -> None:
    expected = list(inspect.signature(connecting.connect).parameters)[1:]
    assert list(arguments.ConnectArguments.__annotations__) == expected
    assert list(arguments.MemberArguments.__annotations__) == list(inspect.signature(Group.add).parameters)[3:]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ('chappe.connect("x", tmeout_s=1.0)', "tmeout_s"),
        ('chappe.sync.connect("x", name=7)', '"int"'),
        ('chappe.sync.connect("x").watch("p", "v", every=1)', "every"),
        ('chappe.sync.connect("x").request("t", b"", timeout=1)', "timeout"),
        ("chappe.Client()", "options"),
        ('chappe.sync.connect("x").subscribe("t", on_full="wait")', "on_full"),
        ('chappe.sync.connect("x").register("p", "v", rat=3)', "rat"),
        ('async def f(m: chappe.Message) -> None: await m.respond(b"", prio=1)', "prio"),
    ],
)
def test_a_type_checker_finds_what_is_wrong(tmp_path: Path, wrong: str, error: str) -> None:
    assert error in _checked(tmp_path, f"import chappe, chappe.sync\n{wrong}\n")


@pytest.mark.timeout(240)
def test_a_type_checker_finds_nothing_wrong_with_ordinary_use(tmp_path: Path) -> None:
    assert "Success" in _checked(tmp_path, GOOD)


def _arguments(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def _checked(folder: Path, text: str) -> str:
    (folder / "use.py").write_text(text)
    cache = Path(__file__).parents[3] / ".mypy_cache"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(folder / "use.py")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr
