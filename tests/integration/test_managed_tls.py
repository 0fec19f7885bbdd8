"""Who is believed to be a broker, and what is written down of what it says."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path as File

import pytest

from chappe.security.authority import Authority
from chappe.wire.control import Done, Variable
from chappe.wire.management import Join, Path, Setup
from tests.support.nodes import eventually, start_node
from tests.support.scriptedbroker import ScriptedBroker

MAY = '[[rule]]\naction = "control"\npattern = "a/#"\nnames = ["leaf-*"]\n'


class Keys:
    """Certificates of one authority."""

    def __init__(self, folder: File) -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "ca", datetime.now(UTC))

    def toml(self, name: str) -> str:
        ca = self.folder / "ca"
        if not (ca / f"{name}.pem").exists():
            self.authority.issue(name, "node", datetime.now(UTC), hosts=["127.0.0.1"])
        tls = f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/{name}.pem"\nkey = "{ca}/{name}.key"\ncrl = "{ca}/ca.crl"\n'
        return tls + f'[audit]\npath = "{self.folder}/{name}.jsonl"\n'

    def router(self, url: str, rules: str) -> str:
        link = f'[broker]\nname = "leaf"\nurls = ["{url}"]\n[[listen]]\nurl = "tls://127.0.0.1:0"\n'
        return '[node]\nname = "a"\n' + link + self.toml("a") + rules

    def audit(self) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in (self.folder / "a.jsonl").read_text().splitlines()]
        return [line for line in lines if line["action"] == "control"]


@pytest.fixture
def keys(tmp_path: File) -> Keys:
    return Keys(tmp_path)


@pytest.mark.spec("GS-160")
async def test_a_node_that_no_rule_lets_control_is_not_taken_for_a_broker(keys: Keys) -> None:
    broker = await ScriptedBroker.begin("tls://127.0.0.1:0", keys.toml("leaf-1"), dev=False)
    for rules, expected in (("", False), (MAY.replace("leaf", "west"), False), (MAY, True)):
        node = await start_node(keys.router(broker.url, rules), dev=False)
        try:
            if expected:
                await broker.heard("a", Join)
                assert node.core.edge is not None
                await eventually(lambda node=node: node.core.edge.leader is not None)  # type: ignore[misc]
            else:
                await eventually(lambda node=node: "control" in str(node.management.problems()))  # type: ignore[misc]
                assert broker.inbox == []
        finally:
            await node.stop(drain=False)
    await broker.end()


@pytest.mark.spec("GS-160")
async def test_many_commands_are_written_down_with_few_waits_for_the_disk(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await ScriptedBroker.begin("tls://127.0.0.1:0", keys.toml("leaf-1"), dev=False)
    node = await start_node(keys.router(broker.url, MAY), dev=False)
    synced, fsync = [], os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    try:
        await broker.heard("a", Join)
        orders = [
            broker.command("a", Setup, paths=tuple(_hop(number, path) for path in range(1, 51)))
            for number in range(1, 201)
        ]
        answers = await asyncio.gather(*orders)
        assert all(isinstance(answer, Done) for answer in answers)
        assert [line["target"] for line in keys.audit()] == ["a/Setup"] * 400
        lines = [line for line in keys.audit() if line["outcome"] == "intent"]
        assert [line["details"]["command"] for line in lines] == list(range(1, 201))  # type: ignore[index]
        assert lines[0]["details"]["paths"][1] == [1, 2, "", ""]  # type: ignore[index]
        assert len(synced) < 100
    finally:
        await node.stop(drain=False)
        await broker.end()


def _hop(number: int, path: int) -> Path:
    variable = Variable(number, "plant", f"v{number}", "float", 1, 1_000_000, 3, 0)
    return Path(variable, path, "", "", (0,), (3,), 0xFFFF)
