"""A node of a mesh that has work for its next turn still takes what others say."""

from __future__ import annotations

import pytest

import chappe
from chappe.events.member import Member
from tests.support.nodes import free_port, running


async def test_control_messages_are_taken_while_the_mesh_has_work_for_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a lost link, while events are sent by another route: an exception here ended one more link."""
    url = f"tcp://127.0.0.1:{free_port()}"
    async with running(f'[node]\nname = "a"\n[[listen]]\nurl = "{url}"\n[mesh]\n') as nodes:
        assert nodes
        monkeypatch.setattr(Member, "busy", property(lambda self: True))
        async with chappe.connect(url) as client:
            for number in range(20):
                await client.subscribe(f"topic/{number}")
            assert client.reconnections == 0
