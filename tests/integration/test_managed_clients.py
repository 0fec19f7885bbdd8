"""The client of the package at managed routers: a publisher's whole life, and paths of a wanted security."""

from __future__ import annotations

from pathlib import Path

import pytest

import chappe
from chappe.errors import ChappeError, QosError, UnknownError
from tests.support.cloud import cloud
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually


@pytest.mark.spec("GS-030")
async def test_a_publisher_connects_registers_publishes_withdraws_and_leaves(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab", "bc") as made, chappe.connect(made.url("c"), name="viewer") as viewer:
        meter = await chappe.connect(made.url("a"), name="meter")
        assert [row["name"] for row in await meter.list("clients")] == ["meter"]
        with pytest.raises(UnknownError, match="nobody publishes plant/speed"):
            await viewer.watch("plant", "speed")
        speed = await meter.register("plant", "speed", rate=100)
        kept = await meter.register("plant", "kept", rate=100)
        assert speed.id != kept.id
        watches = [await viewer.watch("plant", name) for name in ("speed", "kept")]
        assert speed.publish(1.5)
        assert kept.publish(2.5)
        await eventually(lambda: [watch.value for watch in watches] == [1.5, 2.5])
        await meter.withdraw(speed)
        assert not speed.publish(1.6)  # it is said at once, and nothing is sent
        await eventually(lambda: watches[0].withdrawn is not None)
        with pytest.raises(UnknownError, match="nobody publishes plant/speed"):
            await viewer.watch("plant", "speed")
        assert kept.publish(2.6)
        await eventually(lambda: watches[1].value == 2.6)
        assert watches[0].value == 1.5
        again = await meter.register("plant", "speed", rate=50)  # a name is free again, a number is not
        assert again.id not in (speed.id, kept.id)
        await meter.close()
        assert meter.state == "closed"
        assert not again.publish(3.0)
        with pytest.raises(ChappeError):
            await meter.register("plant", "speed", rate=50)
        await eventually(lambda: watches[1].withdrawn is not None)
        await eventually(lambda: not made.tables)


SECURE = {"a-b": 2, "b-d": 2, "a-c": 1, "c-d": 1}


async def ways(made: Deployed) -> dict[str, list[list[str]]]:
    """Routers of the paths by variable."""
    found: dict[str, list[list[str]]] = {}
    for row in await made.rows("leaf", "paths"):
        found.setdefault(row["variable"], []).append(row["routers"])
    return {name: sorted(routers) for name, routers in found.items()}


@pytest.mark.spec("GS-162")
async def test_a_subscription_goes_over_channels_of_its_security_only(tmp_path: Path) -> None:
    """From a to d one way is encrypted, one authentic, and a third, the shortest, is neither."""
    channels = (*SECURE, "a-d")
    file = deployment({"leaf": ""}, {"leaf": tuple("abcd")}, channels, security=SECURE, sockets=tmp_path)
    async with (
        deployed(tmp_path, file) as made,
        chappe.connect(made.url("a"), name="meter") as meter,
        chappe.connect(made.url("d"), name="viewer") as viewer,
    ):
        values = {name: await meter.register("plant", name, rate=100) for name in ("any", "encrypted", "two", "three")}
        watches = {
            "any": await viewer.watch("plant", "any"),
            "encrypted": await viewer.watch("plant", "encrypted", qos=chappe.Qos(security=2)),
            "two": await viewer.watch("plant", "two", qos=chappe.Qos(security=1, redundancy=2)),
        }
        granted = {
            "any": [["a", "d"]],
            "encrypted": [["a", "b", "d"]],
            "two": [["a", "b", "d"], ["a", "c", "d"]],
        }
        assert await ways(made) == granted
        for name, value in values.items():
            assert value.publish(float(len(name)))
        await eventually(lambda: [watch.value for watch in watches.values()] == [3.0, 9.0, 3.0])
        with pytest.raises(QosError, match="redundancy: there are no two disjoint paths from a to d over channels of "
                           "security 2") as refused:  # fmt: skip
            await viewer.watch("plant", "three", qos=chappe.Qos(security=2, redundancy=2))
        assert {best.redundancy for best in refused.value.best.values()} == {1}
        with pytest.raises(QosError, match="disjoint paths from a to d over channels of security 1"):
            await viewer.watch("plant", "three", qos=chappe.Qos(security=1, redundancy=3))
        with pytest.raises(QosError, match="security: no path leads from a to c over channels of security 2"):
            async with chappe.connect(made.url("c"), name="other") as other:
                await other.watch("plant", "three", qos=chappe.Qos(security=2))
        assert await ways(made) == granted


@pytest.mark.spec("GS-162")
async def test_security_is_a_quality_of_paths_between_clouds_and_is_listed(tmp_path: Path) -> None:
    """Two channels cross: a short one that is plain, and an encrypted one by way of two more routers."""
    tree = {"root": "", "north": "root", "south": "root"}
    clouds = {"north": ("n1", "n2"), "south": ("s1", "s2")}
    levels = {"n1-n2": 2, "n2-s2": 2, "s2-s1": 2}
    file = deployment(tree, clouds, (*levels, "n1-s1"), security=levels, sockets=tmp_path)
    async with (
        deployed(tmp_path, file) as made,
        chappe.connect(made.url("n1"), name="meter") as meter,
        chappe.connect(made.url("s1"), name="viewer") as viewer,
    ):
        values = [await meter.register("plant", name, rate=100) for name in ("any", "encrypted")]
        watches = [
            await viewer.watch("plant", "any"),
            await viewer.watch("plant", "encrypted", qos=chappe.Qos(security=2)),
        ]
        found = {row["variable"]: (row["routers"], row["security"]) for row in await made.rows("root", "paths")}
        assert found == {"any": (["n1", "s1"], 0), "encrypted": (["n1", "n2", "s2", "s1"], 2)}
        pieces = {row["variable"]: row["security"] for row in await made.rows("north", "paths")}
        assert pieces["encrypted"] == 2
        for value in values:
            value.publish(1.5)
        await eventually(lambda: [watch.value for watch in watches] == [1.5, 1.5])
        assert made.left("n2", "s2") == made.left("n1", "s1") == 1
        with pytest.raises(QosError, match=r"no two disjoint paths .* over channels of security 2"):
            await viewer.watch("plant", "any", qos=chappe.Qos(security=2, redundancy=2))
        await made.stop("n2")  # what is left is plain: not good enough, and refused with that reason
        await eventually(lambda: made.nodes["n1"].peers.channels() == ["s1"])
        third = await meter.register("plant", "third", rate=100)
        with pytest.raises(QosError, match="over channels of security 2"):
            await viewer.watch("plant", "third", qos=chappe.Qos(security=2))
        assert third.publish(1.0)
