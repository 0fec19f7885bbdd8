"""Clients tell what they publish, and others find it anywhere in the mesh (MR-133)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.client.connecting import Connecting
from chappe.errors import DeniedError
from chappe.runtime.process import open_web
from chappe.security.authority import Authority
from tests.support.commands import chappe as command
from tests.support.keys import Keys
from tests.support.meshes import Plan, mesh, quiet, wants
from tests.support.nodes import NodeProcess, eventually, fetch, free_port, running


async def advertised(client: Any, pattern: str = "") -> list[tuple[str, str, int | None]]:
    return sorted((row["topic"], row["at"], row["clients"]) for row in await client.publications(pattern))


async def until(client: Any, expected: Sequence[tuple[str, str, int | None]], pattern: str = "") -> None:
    async with asyncio.timeout(30):
        while await advertised(client, pattern) != expected:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.02)


@pytest.mark.spec("MR-133")
async def test_what_a_client_advertises_is_found_elsewhere_and_gone_with_it() -> None:
    plan = Plan((("a", "b"), ("b", "c")), mesh='publications = ["file/#"]')
    everywhere = [("file/#", name, None) for name in "abc"]
    async with mesh(plan) as nodes, chappe.connect(nodes["c"].url) as reader:
        notices = await reader.subscribe("mesh/publications")
        await eventually(lambda: wants(nodes["a"], "mesh/publications") == {"c"} and quiet(nodes["a"]))
        publisher = await chappe.connect(nodes["a"].url)
        second = await chappe.connect(nodes["a"].url)
        told = await publisher.advertise("plant/3/#")
        await second.advertise("plant/3/#")
        await publisher.advertise(7)
        await until(reader, sorted([*everywhere, ("7", "a", None), ("plant/3/#", "a", None)]))
        assert ("plant/3/#", "a", 2) in await advertised(publisher)
        assert await advertised(reader, "plant/+/heat") == [("plant/3/#", "a", None)]
        assert await advertised(reader, "int:7") == [("7", "a", None)]
        async with asyncio.timeout(30):
            async for message in notices:
                said = json.loads(message.body)
                if said["node"] == "a" and {"kind": "i", "topic": "7"} in said["publications"]:
                    break
        await publisher.withdraw(told)
        await publisher.withdraw(told)  # again: no error
        assert await advertised(second, "plant/#") == [("plant/3/#", "a", 1)]
        await publisher.close()
        await until(reader, sorted([*everywhere, ("plant/3/#", "a", None)]))
        await second.close()
        await until(reader, everywhere)


async def test_it_is_told_again_after_a_reconnection() -> None:
    port = free_port()
    toml = f'[node]\nname = "n"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
    async with running(toml):
        publisher = await chappe.connect(f"tcp://127.0.0.1:{port}")
        await publisher.advertise("a/+")
    async with running(toml), chappe.connect(f"tcp://127.0.0.1:{port}") as reader:
        await until(reader, [("a/+", "n", 1)])
        await publisher.close()
        await until(reader, [])


SECRET = "0123456789abcdef0123"
RULES = """
[[rule]]
action = ["publish", "subscribe"]
pattern = "open/#"
[[rule]]
action = "publish"
pattern = "secret/#"
names = ["writer"]
"""


async def test_who_may_not_publish_or_hear_or_control_is_told_so(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = Authority.create(tmp_path / "ca", now)
    authority.issue("n", "node", now, hosts=["127.0.0.1"])
    ca = tmp_path / "ca"
    for name in ("writer", "reader"):
        authority.issue(name, "client", now)
    toml = (
        '[node]\nname = "n"\n[[listen]]\nurl = "tls://127.0.0.1:0"\n[measure]\n'
        f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/n.pem"\nkey = "{ca}/n.key"\n{RULES}'
    )

    def connect(url: str, name: str) -> Connecting:
        return chappe.connect(url, name=name, tls=(f"{ca}/ca.pem", f"{ca}/{name}.pem", f"{ca}/{name}.key"))

    async with (
        running(toml, dev=False) as (node,),
        connect(node.url, "writer") as writer,
        connect(node.url, "reader") as reader,
    ):
        await writer.advertise("open/+")
        await writer.advertise("secret/1/#")
        assert await advertised(reader) == [("open/+", "n", 1)]
        with pytest.raises(DeniedError, match="secret/2"):
            await reader.advertise("secret/2")
        with pytest.raises(DeniedError, match="may not publish"):
            await writer.advertise("+/1")  # only a part of it is allowed
        with pytest.raises(ValueError, match="last level"):
            await writer.advertise("open/#/x")
        with pytest.raises(DeniedError, match="may not control"):
            await reader.measure()
        assert await advertised(reader) == [("open/+", "n", 1)]
        assert await advertised(writer, "secret/#") == []  # it may not hear them


@pytest.mark.parametrize("proves", [False, True])
async def test_pages_show_what_a_listing_hides_to_viewers_who_prove_who_they_are(tmp_path: Path, proves: bool) -> None:
    keys, secret = Keys(tmp_path), tmp_path / "token"
    secret.write_text(SECRET)
    token = f'token = "{secret}"\n' if proves else ""
    toml = keys.toml("n", rules=f'[measure]\n[metrics]\naddress = "127.0.0.1:{free_port()}"\n{token}{RULES}')
    async with running(toml, dev=False) as (node,):
        web = open_web(node, asyncio.get_running_loop())
        assert web is not None
        tls = f"{tmp_path}/ca/ca.pem"
        async with (
            chappe.connect(node.url, token=keys.token("writer"), tls=tls) as writer,
            chappe.connect(node.url, token=keys.token("reader"), tls=tls) as reader,
        ):
            try:
                await writer.advertise("secret/1/#")
                await writer.advertise("open/1")
                assert await advertised(reader) == [("open/1", "n", 1)]
                for page in ("/publications.json", "/map"):
                    status, text = await fetch(web.url + page)
                    assert "secret/1" not in text, page
                    assert status == 401 if proves else status in (200, 403), page
                    status, text = await fetch(web.url + page, f"Bearer {SECRET}")
                    assert ("secret/1" in text) == proves, page
            finally:
                await asyncio.to_thread(web.close)


async def test_the_map_and_the_page_show_it(tmp_path: Path) -> None:
    page = free_port()
    plan = Plan((("a", "b"),), more=f'[metrics]\naddress = "127.0.0.1:{page}"\n')
    path = tmp_path / "a.toml"
    path.write_text(plan.toml("a"))
    process = await NodeProcess.start("--dev", path)
    try:
        async with chappe.connect(f"tcp://127.0.0.1:{plan.ports['a']}", wait_s=10) as publisher:
            await publisher.advertise("plant/<b>/+")
            status, text = await fetch(f"http://127.0.0.1:{page}/map")
            assert status == 200
            assert "plant/&lt;b&gt;/+" in text
            status, text = await fetch(f"http://127.0.0.1:{page}/publications.json")
            assert json.loads(text)["rows"][0]["topic"] == "plant/<b>/+"
            url = f"tcp://127.0.0.1:{plan.ports['a']}"
            drawn = await asyncio.to_thread(command, "map", "--url", url)
            assert "plant/<b>/+" in drawn.stdout
            listed = await asyncio.to_thread(command, "ls", "publications", "--json", "--url", url)
            assert json.loads(listed.stdout)["at"] == "a"
    finally:
        await process.end()
