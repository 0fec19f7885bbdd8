"""Bad input at a managed deployment: each gets an error that says what, where and what to do, and nothing changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.client.client import Client
from chappe.errors import ChappeError
from chappe.wire.base import Done
from chappe.wire.management import (
    AddChannel,
    AddRouter,
    ChangeMode,
    Function,
    Input,
    RemoveChannel,
    RemoveRouter,
    SetFlood,
)
from tests.support.commands import chappe as command
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually

LISTED = ("routers", "channels", "publications", "subscriptions", "paths", "entities", "floods", "functions", "modes")
WIDE = 3.0  # seconds of a stamp in the future that no clock error explains


@dataclass
class Plant:
    """Four routers in a row, a stream over all of them, and somebody who asks for what cannot be."""

    made: Deployed
    meter: Client
    speed: Any
    viewer: Client
    stranger: Client
    operator: Client
    got: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._published = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, folder: Path) -> AsyncIterator[Plant]:
        file = deployment({"leaf": ""}, {"leaf": tuple("abcd")}, ("a-b", "b-c", "c-d"))
        async with (
            deployed(folder, file) as made,
            chappe.connect(made.url("a"), name="meter") as meter,
            chappe.connect(made.url("d"), name="viewer") as viewer,
            chappe.connect(made.url("b"), name="stranger") as stranger,
            chappe.connect(made.url("leaf"), name="operator") as operator,
        ):
            plant = cls(made, meter, await meter.register("plant", "speed", rate=1000), viewer, stranger, operator)
            await viewer.watch("plant", "speed", callback=lambda event: plant.got.append(event.value))
            await stranger.register("other", "heat", rate=10)
            await stranger.condense(total("kept"))
            yield plant

    async def state(self) -> dict[str, Any]:
        """Everything the broker and the routers know, but for what differs from moment to moment."""
        listed: dict[str, Any] = {what: await self.made.rows("leaf", what) for what in LISTED}
        tables = {name: [*node.core.paths.rows()] for name, node in self.made.routers.items()}
        return {**listed, "tables": tables, "sizes": self.made.tables, "loads": await self.made.rows("leaf", "loads")}

    def publish(self, count: int = 20) -> None:
        for _ in range(count):
            self._published += 1
            assert self.speed.publish(float(self._published))

    async def arrived(self) -> None:
        """Every value is with the subscriber, once and in order."""
        await eventually(lambda: len(self.got) >= self._published)
        assert self.got == [float(number) for number in range(1, self._published + 1)]


def total(name: str, calculator: str = "builtin:sum", publisher: str = "area") -> Function:
    return Function(publisher=publisher, variable=name, inputs=(Input("plant", "speed"),), calculator=calculator)


Attempt = Callable[[Plant], Awaitable[object]]


def asks(**fields: Any) -> Attempt:
    """The stranger wants the speed in a way that it cannot have."""
    return lambda plant: plant.stranger.watch("plant", "speed", **fields)


def told(request: Any) -> Attempt:
    """An operator asks the broker."""
    return lambda plant: plant.operator.operate(request)


def registers(name: str, **fields: Any) -> Attempt:
    return lambda plant: plant.stranger.register("plant", name, **fields)


# what is tried, the kind of refusal, and the words of the answer: what is wrong and what to do
REFUSED: dict[str, tuple[Attempt, str, str]] = {
    "unknown variable": (
        lambda plant: plant.stranger.watch("plant", "sped"), "UnknownError",
        "nobody publishes plant/sped; correct the name or wait for it",
    ),
    "unknown publisher": (
        lambda plant: plant.stranger.watch("plan", "speed"), "UnknownError", "nobody publishes plan/speed; correct"
    ),
    "unknown flooded": (
        told(SetFlood(id=0, publisher="plant", variable="x")), "UnknownError", "flooding of plant/x: nobody publishes"
    ),
    "type": (asks(type=int), "RefusedError", "plant/speed is of type float, not int"),
    "redundancy": (
        asks(qos=chappe.Qos(redundancy=2)), "QosError", "no two disjoint paths from a to b, 2 are wanted"
    ),
    "latency": (
        asks(qos=chappe.Qos(latency=1e-6)), "QosError", "latency: a path from a to b within 0.001 ms cannot be had, "
        "the best takes 1.",
    ),
    "security": (
        asks(qos=chappe.Qos(security=2)), "QosError", "security: no path leads from a to b over channels of security 2"
    ),
    "capacity": (registers("flood", rate=10**9), "QosError", "load of the router b: it would receive 1e+09 more"),
    "variable of another": (
        registers("speed", rate=1000), "RefusedError", "plant/speed is published by 'meter'; take another name"
    ),
    "variable with other properties": (
        lambda plant: plant.meter.register("plant", "speed", rate=1000, type=bool), "RefusedError",
        "plant/speed is published with other properties; withdraw it first",
    ),
    "rate of what a function feeds on": (
        lambda plant: plant.meter.register("plant", "speed", rate=7), "RefusedError",
        "plant/speed is an input of the function area/kept; withdraw it and register it again with the new rate",
    ),
    "result of a function": (
        lambda plant: plant.stranger.condense(total("speed", publisher="plant")), "RefusedError",
        "plant/speed exists; withdraw it first or take another name",
    ),
    "router": (told(AddRouter(id=0, name="a")), "RefusedError", "router a is in cloud leaf already"),
    "channel": (told(AddChannel(id=0, a="b", b="a")), "RefusedError", "there is a channel b - a; remove it first"),
    "channel to nowhere": (
        told(AddChannel(id=0, a="a", b="z")), "UnknownError", "channel a - z: no router z in cloud leaf; a channel "
        "between clouds is added at the broker above both",
    ),
    "channel in use": (told(RemoveChannel(id=0, a="b", b="c")), "RefusedError", "b"),
    "router in use": (told(RemoveRouter(id=0, name="b")), "RefusedError", "b"),
    "mode": (told(ChangeMode(id=0, mode=16)), "RefusedError", "there is no mode 16: modes are 0 to 15"),
    "endless loop": (
        lambda plant: plant.stranger.condense(total("x", "expression:[speed for i in iter(int, 1)]")), "RefusedError",
        "function area/x: expression: column 1: '[speed for i in iter(int, 1)]' is not part of an expression; use ",
    ),
    "endless recursion": (
        lambda plant: plant.stranger.condense(total("x", "expression:(lambda f: f(f))(lambda f: f(f))")),
        "RefusedError", "function area/x: expression: column 1: there is no function",
    ),
    "endless power": (
        lambda plant: plant.stranger.condense(total("x", "expression:9**9**9**9**9")), "RefusedError",
        "function area/x: expression: column",
    ),
}  # fmt: skip


@pytest.mark.spec("GS-022", "GS-082")
async def test_what_cannot_be_is_refused_in_words_and_nothing_changes(tmp_path: Path) -> None:
    async with Plant.running(tmp_path) as plant:
        plant.publish()
        await plant.arrived()
        before = await plant.state()
        for name, (attempt, kind, words) in REFUSED.items():
            with pytest.raises(ChappeError) as refused:
                await attempt(plant)
            assert (name, type(refused.value).__name__) == (name, kind)
            assert words in str(refused.value), name
            plant.publish()
            assert await plant.state() == before, name
        await plant.arrived()


async def test_a_client_under_a_name_that_is_taken_gets_nothing(tmp_path: Path) -> None:
    async with Plant.running(tmp_path) as plant:
        before = await plant.state()
        for at in "ac":
            async with chappe.connect(plant.made.url(at), name="meter") as rival:
                with pytest.raises(ChappeError, match="meter"):
                    await rival.register("rival", "x", rate=10)
                assert (await plant.state())["publications"] == before["publications"]
        plant.publish()
        await plant.arrived()
        assert plant.meter.state == "connected"


# --- files

FILE = """\
dev = true
[[broker]]
name = "root"
listen = ["tcp://127.0.0.1:7510"]
[[broker]]
name = "west"
parent = "root"
listen = ["tcp://127.0.0.1:7511"]
[[broker]]
name = "leaf"
parent = "west"
listen = ["tcp://127.0.0.1:7512"]
[[router]]
name = "a"
cloud = "leaf"
listen = "tcp://127.0.0.1:7513"
[[router]]
name = "b"
cloud = "leaf"
listen = "tcp://127.0.0.1:7514"
[[router]]
name = "c"
cloud = "leaf"
listen = "tcp://127.0.0.1:7515"
[[channel]]
between = ["a", "b"]
[[channel]]
between = ["b", "c"]
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "root"\n', 'name = "root"\nparent = "leaf"\n',
         "broker[0].parent: the parents form a loop (root -> leaf -> west -> root); every broker must lead to the one"
         " root that has no parent"),
        ('[[channel]]\nbetween = ["b", "c"]\n', "",
         "router[2]: no path of channels leads from a to c; add a [[channel]] that joins them"),
        ('name = "b"\n', 'name = "a"\n',
         "router[1].name: 'a' is already the name of router[0]; every broker and router needs its own"),
    ],
)  # fmt: skip
def test_a_deployment_that_cannot_be_is_explained_and_nothing_is_started(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    assert FILE.count(old) == 1
    file = tmp_path / "grid.toml"
    file.write_text(FILE.replace(old, new))
    said = command("up", file, code=2).stderr
    assert f"grid.toml: {why}" in " ".join(said.split())
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]  # no broker has made its store


# --- stamps


@pytest.mark.spec("GS-106")
async def test_a_forged_stamp_on_a_flooded_variable_is_dropped_counted_and_named(tmp_path: Path) -> None:
    async with Plant.running(tmp_path) as plant:
        assert isinstance(await plant.operator.operate(SetFlood(id=0, publisher="plant", variable="speed")), Done)
        plant.publish()
        await plant.arrived()
        before = await plant.state()
        for ahead_s in (WIDE, 3600.0, 1e9):
            plant.speed.publish(-1.0, created=time.time_ns() + int(ahead_s * 1e9))
        plant.publish()
        await plant.arrived()
        assert plant.made.counted("drop_future") == {"a": 3}  # at the first router, and none of it goes on
        assert ("variable", plant.speed.id, "drop_future", 3) in plant.made.nodes["a"].engine.address_drops()
        assert await plant.state() == before


@pytest.mark.spec("GS-106")
async def test_a_neighbour_that_forges_a_stamp_silences_nobody_behind_the_next_router(tmp_path: Path) -> None:
    """It comes over a channel, as from a router that was taken over: the next one drops it."""
    async with Plant.running(tmp_path) as plant:
        assert isinstance(await plant.operator.operate(SetFlood(id=0, publisher="plant", variable="speed")), Done)
        a, b = plant.made.nodes["a"], plant.made.nodes["b"]
        a.engine.status.future_tolerance_ns = 1 << 62  # a believes every stamp
        plant.speed.publish(-1.0, created=time.time_ns() + 10**15)
        await eventually(lambda: b.engine.counters()["drop_future"] == 1)
        plant.publish()
        await plant.arrived()
        assert plant.made.counted("drop_future") == {"b": 1}


@pytest.mark.spec("GS-106")
async def test_a_forged_stamp_on_any_variable_is_dropped_and_no_holder_waits_for_it(tmp_path: Path) -> None:
    """A stamp that no clock can be wrong by would stay the newest value of everybody who pulls."""
    async with Plant.running(tmp_path) as plant:
        plant.publish()
        await plant.arrived()
        before = await plant.state()
        plant.speed.publish(-1.0, created=time.time_ns() + 10**15)
        plant.publish()
        await plant.arrived()
        assert -1.0 not in plant.got
        assert plant.made.counted("drop_future") == {"a": 1}
        assert await plant.state() == before
