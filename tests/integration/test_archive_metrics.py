"""The page of an archive: what it stored, what it dropped and why, what waits."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import chappe
from tests.support.nodes import NodeProcess, fetch, free_port, running

NODE = '[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
ARCHIVE = """
[archive]
name = "plant"
url = "{url}"
folder = "history"
log = "log"
topics = ["plant/#"]
[metrics]
address = "127.0.0.1:{port}"
"""


def figures(text: str) -> dict[str, float]:
    """By name and labels, without those of the archive."""
    found = re.findall(r"^chappe_archive_(\w+)\{archive=\"plant\",?(.*)\} (\S+)$", text, re.MULTILINE)
    return {f"{name} {labels}".rstrip(): float(value) for name, labels, value in found}


async def test_an_archive_shows_what_it_stored_dropped_and_has_waiting(tmp_path: Path) -> None:
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    file = tmp_path / "plant.toml"
    async with running(NODE.format(port=free_port())) as (node,), chappe.connect(node.url) as client:
        file.write_text(ARCHIVE.format(url=node.url, port=port))
        archive = await NodeProcess.start(file, module="chappe.archive")
        try:
            for _ in range(3):
                await client.publish("plant/order", b"open", durable=True)
            client.publish("PBR/Report/plant/a", b"nonsense")
            await client.flush(10)

            async def shown() -> dict[str, float]:
                status, text = await fetch(f"{page}/metrics")
                assert status == 200
                return figures(text)

            async with asyncio.timeout(30):
                while not (now := await shown())['drops_total dataset="measurements",reason="malformed"']:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert now['rows_total dataset="events"'] == now['offset dataset="events"'] == 3
            assert now['bytes_total dataset="events"'] > 3 * len(b"open")
            assert now['queued dataset="events"'] == now["waiting_bytes"] == 0
            assert now["lag_seconds"] < 5
            assert now["synced_timestamp_seconds"] > 1.7e9
            assert now["connected"] == 1
            reasons = {name.partition("reason=")[2] for name in now if name.startswith("drops_total")}
            assert reasons == {'"no_room"', '"malformed"', '"queue_full"', '"lost_by_node"'}
            assert await fetch(f"{page}/health") == (200, "alive\n")
            assert await fetch(f"{page}/ready") == (200, "ready\n")
            await node.stop(drain=False)
            async with asyncio.timeout(30):
                while (await fetch(f"{page}/ready"))[0] != 503:  # noqa: ASYNC110  nothing announces it
                    await asyncio.sleep(0.05)
        finally:
            await archive.end(signal.SIGTERM)
