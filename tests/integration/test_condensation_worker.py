"""The worker of a router: code of others runs there, and what goes wrong in it stays there."""

from __future__ import annotations

import os
import signal
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chappe
from chappe.errors import RefusedError
from chappe.runtime.functions import SUSPECT
from chappe.security.authority import Authority
from chappe.wire.base import Variable
from tests.support.functions import Plant, alive, children, installed, plant
from tests.support.nodes import NodeProcess, eventually, running

CALCULATORS = """
    import os, signal, time
    from chappe.status.condensation.calculators import Calculator, part
    from chappe.status.condensation.triggers import Trigger

    class Product(Calculator):
        def calculate(self):
            print("to be seen by nobody")
            result = 1.0
            for value in self.table.values:
                result *= value
            return result

    class Hottest(Calculator):
        '''Filters values of a user type by its own rule.'''
        def accepts(self, value, low, high):
            return low is None or part(value, "data") >= low
        def calculate(self):
            return max(part(value, "data") for value in self.table.values)

    class Third(Trigger):
        '''Fires at every third event.'''
        def __init__(self, setup):
            super().__init__(setup)
            self.seen = 0
        def arrived(self, position, now_ns):
            self.seen += 1
            return self.seen % 3 == 0

    class Endless(Calculator):
        def calculate(self):
            while True:
                try:
                    pass
                except Exception:
                    pass

    class Sleepy(Calculator):
        def calculate(self):
            time.sleep(30)

    class Deaf(Calculator):
        '''Never comes back to Python.'''
        def calculate(self):
            return float(sum(range(10 ** 14)))

    class Greedy(Calculator):
        def calculate(self):
            return float(len(bytearray(1 << 36)))

    class Wrong(Calculator):
        def calculate(self):
            return self.table.values[0] / (self.table.values[0] - 5)

    class Odd(Calculator):
        def calculate(self):
            return "text"

    class Deadly(Calculator):
        def calculate(self):
            if self.table.values[0] > 10:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0.0

    class Unready(Calculator):
        def __init__(self, setup, table):
            raise RuntimeError("no model file")

    class Stranger:
        def __init__(self, setup, table):
            pass
"""
ENTRIES = {
    name.lower(): name
    for name in (
        "Product",
        "Hottest",
        "Endless",
        "Sleepy",
        "Deaf",
        "Greedy",
        "Wrong",
        "Odd",
        "Deadly",
        "Unready",
        "Stranger",
    )
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, CALCULATORS, trigger_third="Third", **ENTRIES)


async def publish_until(variable: Any, value: float, condition: Any) -> None:
    """Publish the same value again and again until something is so."""

    def so() -> object:
        variable.publish(value)
        return condition()

    await eventually(so)


@pytest.mark.spec("GS-130", "GS-131")
@pytest.mark.usefixtures("package")
async def test_a_registered_calculator_and_trigger_run_in_the_worker() -> None:
    async with plant() as router:
        one, two = [await router.client.register("grid", name, rate=100) for name in ("one", "two")]
        product = await router.place([one, two], "entry:product")
        third = await router.place([one], "builtin:sum", "third", trigger="entry:third")
        await router.reaches(product, "running")
        await router.reaches(third, "running")
        watch = await router.client.watch("out", "result")
        thirds = await router.client.watch("out", "third")
        for at in range(1, 10):
            one.publish(float(at), created=at)
        two.publish(4.0, created=10)
        await eventually(lambda: watch.value == 36.0)
        await eventually(lambda: thirds.value == 9.0)
        assert [event.value for event in thirds.take_nowait()] == [3.0, 6.0, 9.0]


@pytest.mark.spec("GS-132")
@pytest.mark.usefixtures("package")
async def test_a_registered_calculator_filters_values_of_user_types() -> None:
    class Usage(msgspec.Struct):
        id: int
        data: float

    async with plant() as router:
        city = await router.client.register("grid", "city", rate=100, type=Usage)
        output = await router.place([city], "entry:hottest", low=10.0)
        await router.reaches(output, "running")
        watch = await router.client.watch("out", "result")
        for at, data in enumerate((3.0, 12.0, 9.9, 10.0), start=1):
            city.publish(Usage(at, data), created=at)
        await eventually(lambda: watch.value == 10.0)
        assert [event.value for event in watch.take_nowait()] == [12.0, 10.0]
        await eventually(lambda: router.node.functions.rows()[0].get("filtered") == 2)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("endless", "more than 50 ms of the processor"),
        ("sleepy", "did not end within 500 ms"),
        ("greedy", "more memory than the worker may have"),
        ("unready", "it could not be started: no model file"),
        ("stranger", "makes a Stranger, not a Calculator"),
    ],
)
@pytest.mark.usefixtures("package")
async def test_a_function_beyond_its_budget_is_stopped_and_the_others_go_on(entry: str, words: str) -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        good = await router.place([reading], "builtin:sum", "good")
        await router.reaches(good, "running")
        watch = await router.client.watch("out", "good")
        pid = router.node.functions.pid
        bad = await router.place([reading], f"entry:{entry}", "bad")
        await publish_until(reading, 1.0, lambda: state(router, bad) == "stopped")
        assert words in (await router.row(bad))["reason"]
        await publish_until(reading, 2.0, lambda: watch.value == 2.0)
        assert router.node.functions.pid == pid
        assert router.node.functions.restarts == 0


@pytest.mark.parametrize("entry", ["wrong", "odd"])
@pytest.mark.usefixtures("package")
async def test_an_error_in_a_calculation_is_counted_and_the_function_goes_on(entry: str) -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        output = await router.place([reading], f"entry:{entry}")
        await router.reaches(output, "running")
        reading.publish(5.0)
        await eventually(lambda: row(router, output).get("errors") == 1)
        assert row(router, output)["state"] == "running"
        assert row(router, output)["reason"].startswith({"wrong": "ZeroDivisionError", "odd": "ValueError"}[entry])


@pytest.mark.usefixtures("package")
async def test_a_function_that_kills_the_worker_is_stopped_after_a_few_times() -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        good = await router.place([reading], "builtin:sum", "good")
        bad = await router.place([reading], "entry:deadly", "bad")
        watch = await router.client.watch("out", "good", wait_s=30)
        await router.reaches(bad, "running")
        await publish_until(reading, 11.0, lambda: state(router, bad) == "stopped")
        assert row(router, bad)["reason"] == f"the worker ended {SUSPECT} times in it: killed by signal 9"
        await publish_until(reading, 12.0, lambda: watch.value == 12.0)
        await router.reaches(good, "running")
        assert router.node.functions.restarts == SUSPECT


@pytest.mark.usefixtures("package")
async def test_a_calculation_that_cannot_be_interrupted_costs_the_worker_and_then_the_function() -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        good = await router.place([reading], "builtin:sum", "good")
        bad = await router.place([reading], "entry:deaf", "bad")
        watch = await router.client.watch("out", "good", wait_s=30)
        await router.reaches(bad, "running")
        await publish_until(reading, 1.0, lambda: state(router, bad) == "stopped")
        assert "it did not report for 1.5 s" in row(router, bad)["reason"]
        await publish_until(reading, 3.0, lambda: watch.value == 3.0)
        await router.reaches(good, "running")


async def test_a_worker_that_dies_is_started_again_and_the_stream_goes_on() -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        output = await router.place([reading], "builtin:sum")
        await router.reaches(output, "running")
        watch = await router.client.watch("out", "result")
        await publish_until(reading, 1.0, lambda: watch.value == 1.0)
        first = router.node.functions.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await publish_until(reading, 2.0, lambda: watch.value == 2.0)
        assert router.node.functions.pid != first
        assert (await router.row(output))["restarts"] == 1


async def test_the_socket_of_the_worker_is_closed_to_others() -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        output = await router.place([reading], "builtin:sum")
        await router.reaches(output, "running")
        folder = router.node.functions.folder
        assert folder is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for token in (None, "guess"):
            with pytest.raises(RefusedError, match="its token is good once"):
                await chappe.connect(f"unix://{folder}/router", name="functions-of-r1", token=token)
        await router.displace(output)
        await eventually(lambda: not folder.exists())


@pytest.mark.usefixtures("package")
async def test_the_worker_may_touch_its_inputs_and_outputs_only() -> None:
    async with plant() as router:
        reading = await router.client.register("grid", "reading", rate=100)
        await router.client.register("grid", "secret", rate=100)
        output = await router.place([reading], "builtin:sum")
        await router.reaches(output, "running")
        functions = router.node.functions
        assert functions.may("watch", "grid", "reading")
        assert functions.may("register", "out", "result")
        for action, publisher, variable in (("watch", "grid", "secret"), ("register", "grid", "reading"),
                                            ("watch", "out", "result"), ("register", "out", "other")):  # fmt: skip
            assert not functions.may(action, publisher, variable)


async def test_a_secured_router_lets_its_worker_in_and_no_further(tmp_path: Path) -> None:
    """No rule names the worker: it may do what was placed, whatever the rules are."""
    authority = Authority.create(tmp_path, datetime.now(UTC))
    authority.issue("r1", "node", datetime.now(UTC), hosts=["127.0.0.1"])
    authority.issue("plant", "client", datetime.now(UTC), hosts=[])
    tls = "\n".join(f'{key} = "{tmp_path}/{name}"' for key, name in (("ca", "ca.pem"), ("cert", "r1.pem"),
                                                                    ("key", "r1.key"), ("crl", "ca.crl")))  # fmt: skip
    toml = (
        f'[node]\nname = "r1"\n[[listen]]\nurl = "tls://127.0.0.1:0"\n[tls]\n{tls}\n[[rule]]\nnames = ["plant"]\n'
        'action = ["register", "watch", "control", "admin"]\npattern = "#"\n'
    )
    files = (f"{tmp_path}/ca.pem", f"{tmp_path}/plant.pem", f"{tmp_path}/plant.key")
    async with running(toml, dev=False) as (node,), chappe.connect(node.url, name="plant", tls=files) as client:
        router = Plant(node, client)
        reading = await client.register("grid", "reading", rate=100)
        output = await router.place([reading], "builtin:sum")
        watch = await client.watch("out", "result", wait_s=30)
        await publish_until(reading, 4.0, lambda: watch.value == 4.0)
        await node.reload(node.config)  # rights are looked at again, and the worker keeps its own
        await publish_until(reading, 5.0, lambda: watch.value == 5.0)
        assert (await router.row(output))["restarts"] == 0
        worker = next(each for each in node.core.sessions if each.internal)
        assert not node.core.access.book.allows(worker.identity, "watch", "grid/reading")
        assert not node.core.access.authorize(worker.port, "s", b"some/topic")


async def test_a_worker_does_not_outlive_a_router_that_was_killed() -> None:
    node = await NodeProcess.start("--dev", "--listen", "tcp://127.0.0.1:0", "--name", "r1")
    try:
        async with chappe.connect(node.urls[0], name="plant", reconnect=False) as client:
            router = Plant(None, client)  # type: ignore[arg-type]
            reading = await client.register("grid", "reading", rate=100)
            output = await router.place([reading], "builtin:sum")
            watch = await client.watch("out", "result", wait_s=30)
            await publish_until(reading, 1.0, lambda: watch.value == 1.0)
            assert (await router.row(output))["id"] == output.variable_id
            [worker] = children(node.process.pid)
            await node.end(signal.SIGKILL)
            await eventually(lambda: not alive(worker))
    finally:
        await node.end()


def row(router: Plant, output: Variable) -> dict[str, Any]:
    return next(each for each in router.node.functions.rows() if each["id"] == output.variable_id)


def state(router: Plant, output: Variable) -> str:
    return str(row(router, output)["state"])
