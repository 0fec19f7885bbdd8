"""Clients at real cells: messages, files, names, refusals, restarts; by API and by command."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.client.cells import Cell
from chappe.errors import DeniedError, LinkError, RefusedError, UnreachableError
from chappe.runtime.config.reader import parse
from tests.support.commands import chappe as command
from tests.support.commands import read_until, rows, started
from tests.support.keys import Keys
from tests.support.nodes import NodeProcess, eventually, free_port, running

RULES = """
[[rule]]
action = "register"
pattern = "cell:fr.#"
[[rule]]
action = ["publish"]
pattern = ["cell:fr.#"]
[[rule]]
action = "publish"
pattern = "cell:fr.secret"
deny = true
"""


def cell_file(name: str, port: int, peer: int | None = None, rules: str = "") -> str:
    """The file of a cell, and of the one that it dials."""
    lines = [
        f'[node]\nname = "{name}"', f'[[listen]]\nurl = "tcp://127.0.0.1:{port}"', "[cells]\nupdate_s = 0.2", rules,
    ]  # fmt: skip
    if peer is not None:
        lines.append(f'[[peer]]\nname = "n{peer}"\nurl = "tcp://127.0.0.1:{peer}"')
    return "\n".join(lines)


@contextlib.asynccontextmanager
async def two_cells(*, rules: str = "", dev: bool = True) -> AsyncIterator[tuple[str, str]]:
    """The addresses of two cells that are linked."""
    one, two = free_port(), free_port()
    files = (
        cell_file(f"n{one}", one, two, rules),
        cell_file(f"n{two}", two, None, rules) + (f'\n[[peer]]\nname = "n{one}"\n'),
    )
    async with running(*files, dev=dev):
        yield f"tcp://127.0.0.1:{one}", f"tcp://127.0.0.1:{two}"


async def send_once_known(cell: Cell, name: str, body: Any, **options: Any) -> chappe.Sent:
    """Send as soon as the other cell has heard of the name."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await cell.send(name, body, **options)
            except UnreachableError:
                await asyncio.sleep(0.1)


@pytest.mark.spec("BF-27")
async def test_a_file_arrives_whole_and_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(random.Random(1).randbytes(50_000_000))
    async with (
        two_cells() as (here, there),
        chappe.connect(here, name="one") as one,
        chappe.connect(there, name="two") as two,
        one.cell("fr.paris") as paris,
        two.cell("fr.lyon") as lyon,
    ):
        seen: list[int] = []
        sending = asyncio.ensure_future(send_once_known(paris, "fr.lyon", source, progress=seen.append))
        message = await lyon.receive()
        assert (message.source, message.large) == ("fr.paris", True)
        assert await message.save(tmp_path / "target") == 50_000_000
        assert (await sending).size == 50_000_000
        digests = {hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in ("source", "target")}
        assert len(digests) == 1
        assert seen == sorted(seen)
        sending = asyncio.gather(*(paris.send("fr.lyon", bytes(25_000)) for _ in range(400)))
        assert [(await lyon.receive()).size for _ in range(400)] == [25_000] * 400
        assert sum(each.size for each in await sending) == 10_000_000


@pytest.mark.spec("BF-04", "BF-27")
async def test_names_and_routes_are_listed_and_names_move() -> None:
    async with (
        two_cells() as (here, there),
        chappe.connect(here, name="one") as one,
        chappe.connect(there, name="two") as two,
        one.cell("fr.paris", "de.bonn") as paris,
        two.cell("fr.lyon") as lyon,
    ):
        await send_once_known(paris, "fr.lyon", b"x")
        assert (await lyon.receive()).body == b"x"
        names = {row["name"] for row in await paris.names("fr.")}
        assert names == {"fr.paris", "fr.lyon"}
        (row,) = await paris.routes("fr.lyon")
        assert row["share"] == pytest.approx(1.0)
        async with chappe.connect(there, name="three") as three:
            with pytest.raises(RefusedError, match="belongs to another client"):
                await three.cell("fr.lyon").__aenter__()
        await paris.remove_name("de.bonn")
        await lyon.add_name("de.bonn")
        await send_once_known(paris, "de.bonn", b"moved")
        assert (await lyon.receive()).destination == "de.bonn"


@pytest.mark.spec("BF-27")
async def test_a_name_that_nobody_has_cannot_be_reached_within_five_seconds() -> None:
    async with two_cells() as (here, _), chappe.connect(here, name="one") as one, one.cell("fr.paris") as paris:
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match="nowhere"):
            await paris.send("fr.nowhere", b"x")
        assert time.monotonic() - begun < 20  # 5 s on a machine that has time
        assert (await paris.send("fr.paris", b"to itself")).size == 9


async def test_rules_say_who_has_a_name_and_who_sends_to_it(tmp_path: Path) -> None:
    one = free_port()
    async with running(cell_file(f"n{one}", one, None, RULES)) as (node,):
        node.core.access.book = type(node.core.access.book).of(node.config.rule)
        async with chappe.connect(f"tcp://127.0.0.1:{one}", name="one") as client:
            with pytest.raises(DeniedError, match="cell:de"):
                await client.cell("de.bonn").__aenter__()
            async with client.cell("fr.paris") as paris:
                with pytest.raises(DeniedError, match="cell:de"):
                    await paris.send("de.bonn", b"x")
                with pytest.raises(DeniedError, match="denies it"):
                    await paris.send("fr.secret", bytes(100_000))
                assert (await paris.send("fr.paris", b"x")).size == 1
                assert node.core.access.refused >= 3


@pytest.mark.spec("BF-28")
async def test_a_multicast_comes_to_the_other_names_of_the_same_node() -> None:
    port = free_port()
    async with (
        running(cell_file(f"n{port}", port)),
        chappe.connect(f"tcp://127.0.0.1:{port}", name="one") as one,
        chappe.connect(f"tcp://127.0.0.1:{port}", name="two") as two,
        one.cell("fr.paris") as paris,
        one.cell("fr.nice") as nice,
        two.cell("fr.lyon") as lyon,
    ):
        paris.multicast("fr.*", b"all")
        for cell in (nice, lyon):
            message = await asyncio.wait_for(cell.receive(), 20)
            assert (message.source, message.body) == ("fr.paris", b"all")
        nice.multicast("fr.paris*", b"back")
        assert (await asyncio.wait_for(paris.receive(), 20)).body == b"back"  # and not its own


async def test_rules_that_change_are_asked_again_about_flows_that_go_on(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    allows, forbids = (
        keys.toml(
            "n1", "tcp://127.0.0.1:0",
            f'[cells]\n[[rule]]\naction = ["register", "publish"]\npattern = {patterns}\n',
        )
        for patterns in ('["cell:fr.#", "cell:de.#"]', '["cell:fr.#", "cell:it.#"]')
    )  # fmt: skip
    async with (
        running(allows, dev=False) as (node,),
        chappe.connect(node.url, token=keys.token("one")) as client,
        client.cell("fr.paris") as paris,
        client.cell("fr.lyon") as lyon,
    ):
        with pytest.raises(DeniedError):
            await paris.send("it.rome", b"x")
        await paris.send("fr.lyon", b"x")
        await lyon.receive()
        with pytest.raises(UnreachableError):
            await paris.send("de.bonn", b"x")
        await node.reload(parse(forbids))
        with pytest.raises(DeniedError, match="cell:de"):
            await paris.send("de.bonn", b"x")
        with pytest.raises(UnreachableError):
            await paris.send("it.rome", b"x")
        await paris.send("fr.lyon", b"y")
        assert (await lyon.receive()).body == b"y"
        assert client.reconnections == 0


async def test_a_node_that_is_no_cell_says_so() -> None:
    port = free_port()
    async with (
        running(f'[[listen]]\nurl = "tcp://127.0.0.1:{port}"'),
        chappe.connect(f"tcp://127.0.0.1:{port}") as client,
    ):
        with pytest.raises(RefusedError, match=r"\[cells\]"):
            await client.cell("fr.paris").__aenter__()


@pytest.mark.spec("BF-27")
async def test_a_receiver_that_comes_back_gets_what_was_not_confirmed() -> None:
    async with (
        two_cells() as (here, there),
        chappe.connect(here, name="one") as one,
        one.cell("fr.paris") as paris,
        chappe.connect(there, name="two") as two,
        two.cell("fr.lyon") as lyon,
    ):
        await send_once_known(paris, "fr.lyon", b"first")
        assert (await lyon.receive()).body == b"first"
        sending = asyncio.gather(*(paris.send("fr.lyon", bytes([n]) * 3_000_000) for n in range(4)))
        await lyon.receive()
        await eventually(  # it has filled all the room that there is, and waits for a reader
            lambda: one.counters()["parcels_out"] > 200 and one.core.parcels.flows()[0]["unconfirmed"] == 0
        )
        two._session.drop(LinkError("as if it had died"))  # type: ignore[union-attr]
        two._session.state = "closed"  # type: ignore[union-attr]
        async with chappe.connect(there, name="two") as again, again.cell("fr.lyon") as anew:
            got = []
            while not got or got[-1] != 3:
                message = await anew.receive()
                body = await message.read()
                assert set(body) == {body[0]}
                assert len(body) == 3_000_000
                got.append(body[0])
            assert got == sorted(set(got))
            assert len(await sending) == 4


async def test_a_flow_goes_on_over_a_lost_connection() -> None:
    async with (
        two_cells() as (here, there),
        chappe.connect(here, name="one") as one,
        chappe.connect(there, name="two") as two,
        one.cell("fr.paris") as paris,
        two.cell("fr.lyon") as lyon,
    ):
        await send_once_known(paris, "fr.lyon", b"first")
        await lyon.receive()
        body = random.Random(3).randbytes(30_000_000)
        sending = asyncio.ensure_future(paris.send("fr.lyon", body))
        message = await lyon.receive()
        await eventually(  # it has filled all the room that there is, and waits for a reader
            lambda: one.counters()["parcels_out"] > 200 and one.core.parcels.flows()[0]["unconfirmed"] == 0
        )
        one._session.drop(LinkError("cut"))  # type: ignore[union-attr]
        await eventually(lambda: one._exchange.up.is_set())
        assert await message.read() == body
        assert (await sending).size == len(body)
        assert one.reconnections == 1


@pytest.mark.parametrize("end", ["receiver", "sender"])
async def test_a_client_that_connects_again_costs_no_path(end: str) -> None:
    """What comes for its names meanwhile returns, from the cell at the end of the only path."""
    async with (
        two_cells() as (here, there),
        chappe.connect(here, name="one") as one,
        chappe.connect(there, name="two") as two,
        one.cell("fr.paris") as paris,
        two.cell("fr.lyon") as lyon,
    ):
        await send_once_known(paris, "fr.lyon", b"first")
        await lyon.receive()
        body = random.Random(4).randbytes(20_000_000)
        sending = asyncio.ensure_future(paris.send("fr.lyon", body))
        message = await lyon.receive()
        reading = asyncio.ensure_future(message.read())
        client = two if end == "receiver" else one
        before = client.counters()["parcels_in"]
        await eventually(lambda: client.counters()["parcels_in"] > before + 20)
        client._session.drop(LinkError("cut"))  # type: ignore[union-attr]
        async with asyncio.timeout(20):  # a path that is excluded is not used for 30 s
            assert await reading == body
            assert (await sending).size == len(body)
        assert client.reconnections == 1
        await paris.send("fr.lyon", b"last")
        assert (await lyon.receive()).body == b"last"


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Two cells in processes of their own."""
    one, two = free_port(), free_port()
    (tmp_path / "one.toml").write_text(cell_file(f"n{one}", one, two))
    (tmp_path / "two.toml").write_text(cell_file(f"n{two}", two) + f'\n[[peer]]\nname = "n{one}"\n')
    nodes = [await NodeProcess.start("--dev", tmp_path / f"{name}.toml") for name in ("two", "one")]
    yield f"tcp://127.0.0.1:{one}", f"tcp://127.0.0.1:{two}"
    for node in nodes:
        await node.end(signal.SIGTERM)


async def test_commands_send_receive_and_list(processes: tuple[str, str], tmp_path: Path) -> None:
    await asyncio.to_thread(commands, *processes, tmp_path)


def commands(here: str, there: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(random.Random(5).randbytes(3_000_000))
    arguments = ("cell", "receive", "fr.lyon", "--to", tmp_path / "in", "--count", "2", "--json", "--url", there)
    with started(*arguments) as receiver:
        read_until(receiver.stderr, "receives")
        deadline = time.monotonic() + 30
        while not rows(command("cell", "names", "fr.lyon", "--json", "--url", here).stdout):
            assert time.monotonic() < deadline
        (name,) = rows(command("ls", "cells", "--json", "--url", here).stdout)
        assert (name["name"], name["hops"], name["bytes_per_s"] > 0) == ("fr.lyon", 1, True)
        (link,) = rows(command("ls", "cell_links", "--json", "--url", here).stdout)
        assert (link["cell"], link["status"], link["bytes_per_s"] > 0) == (name["cell"], "up", True)
        assert "bytes_per_s" in command("ls", "cell_links", "--url", here).stdout
        (sent,) = rows(command("cell", "send", "fr.lyon", source, "--json", "--url", here).stdout)
        assert (sent["to"], sent["bytes"]) == ("fr.lyon", 3_000_000)
        done = command("cell", "send", "fr.lyon", "-", "--as", "fr.paris", "--url", here, stdin="from standard input")
        assert "fr.lyon has 19 bytes" in done.stderr
        text, _ = receiver.communicate(timeout=30)
        assert receiver.returncode == 0
    first, second = rows(text)
    assert Path(first["file"]).read_bytes() == source.read_bytes()
    assert (second["from"], Path(second["file"]).read_text()) == ("fr.paris", "from standard input")
    with started("cell", "receive", "fr.lyon", "--url", there) as receiver:
        read_until(receiver.stderr, "receives")
        while not rows(command("cell", "names", "fr.", "--json", "--url", here).stdout):
            assert time.monotonic() < deadline + 60
        command("cell", "multicast", "fr.*", "hello", "--as", "fr.nice", "--url", here)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "fr.nice  hello\n"
    assert "cell routes" in command("cell", "routes", "--help").stdout
    done = command("cell", "multicast", "fr.lyon", "x", "--url", here, code=2)
    assert "write fr.lyon*" in done.stderr.replace("\n", " ") or "one name" in done.stderr
    done = command("cell", "send", "fr.nowhere", source, "--url", here, code=3)
    assert "cannot be reached" in done.stderr
    command("cell", "send", "fr.lyon", tmp_path / "missing", "--url", here, code=2)


async def test_the_blocking_client_has_the_same(tmp_path: Path) -> None:
    async with two_cells() as (here, there):
        await asyncio.to_thread(blocking, here, there, tmp_path)


def blocking(here: str, there: str, tmp_path: Path) -> None:
    with (
        chappe.sync.connect(here, name="one") as one,
        chappe.sync.connect(there, name="two") as two,
        one.cell("fr.paris") as paris,
        two.cell("fr.lyon") as lyon,
    ):
        paris.add_name("fr.nice")
        assert paris.own == ("fr.paris", "fr.nice")
        deadline = time.monotonic() + 30
        while not paris.names("fr.lyon"):
            assert time.monotonic() < deadline
        assert paris.send("fr.lyon", b"bytes").size == 5
        message = lyon.receive(timeout_s=10)
        assert (message.source, message.body, message.size) == ("fr.paris", b"bytes", 5)
        sent = paris.send("fr.lyon", (bytes([n]) * 100_000 for n in range(5)), source="fr.nice")
        assert sent.size == 500_000
        message = lyon.receive(timeout_s=10)
        assert message.save(tmp_path / "file") == 500_000
        assert sum(map(len, message)) == 500_000
        assert paris.routes("fr.lyon")
        paris.multicast("fr.ly*", b"all")
        assert next(iter(lyon)).multicast
        with pytest.raises(chappe.errors.TimeoutExpired):
            lyon.receive(timeout_s=0.05)
