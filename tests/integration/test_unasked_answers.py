"""A neighbour that answers what nobody asked, or says too much, changes nothing but its own connection."""

from __future__ import annotations

import socket

from structlog.testing import capture_logs

from chappe.wire import control
from chappe.wire.frames import Kind, encode_frame
from tests.support import leaks
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

NODE = '[node]\nname = "hub"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[[peer]]\nname = "liar"\n'


async def test_a_data_link_that_nobody_asked_for_is_refused_and_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind(("127.0.0.1", 0))
        victim.setblocking(False)
        async with running(NODE) as (node,):
            liar = await WireClient.open(node.url, role="node", name="liar")
            try:
                before = leaks.sockets()
                opened = control.DatagramOpened(id=1, port=victim.getsockname()[1], link=7, key=bytes(16))
                with capture_logs() as lines:
                    for _ in range(20):
                        liar.send(opened)
                    await eventually(lambda: node.datagrams.refused == 20)
                assert leaks.sockets() == before
                assert node.datagrams.link(next(iter(node.connections)).port) is None
                refused = [line for line in lines if line["event"] == "DatagramOpened refused"]
                assert {line["peer"] for line in refused} == {"liar"}
            finally:
                await liar.close()


async def test_a_flood_of_control_messages_of_a_node_is_not_read_until_it_is_handled() -> None:
    async with running(NODE) as (node,):
        liar = await WireClient.open(node.url, role="node", name="liar")
        honest = await WireClient.open(node.url, name="honest")
        try:
            one = encode_frame(Kind.CONTROL, control.encode(control.Retract(variable_ids=tuple(range(50)))))
            for _ in range(40):
                liar.send_bytes(one * 500)
            await eventually(lambda: node.shell.paused > 0)
            await honest.subscribe("mine")
            await eventually(lambda: not node.shell.behind)
            await liar.flush()  # it is read again
        finally:
            await liar.close()
            await honest.close()
