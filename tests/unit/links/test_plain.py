from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from chappe.engine._engine import Engine
from chappe.links._socket import Flusher
from chappe.links.address import parse
from chappe.links.plain import PlainLink
from chappe.links.tick import FlushTick
from tests.model.engine import CREDIT, frame
from tests.unit.engine.test_engine import PUBLISHER, SUBSCRIBER, define, event
from tests.unit.links.wait import until

BODY = 10_000


def read(sock: socket.socket, before: bytearray) -> bytearray:
    """What was read before, and what there is now."""
    with contextlib.suppress(BlockingIOError):
        before += sock.recv(1 << 20)
    return before


async def test_a_publisher_gets_credit_when_a_slow_subscriber_has_read_on_though_nothing_else_happens() -> None:
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER, credit=20 * BODY)
    subscriber = engine.open_port(issuer=SUBSCRIBER, queue_bytes=10 * BODY)
    engine.topics.subscribe(subscriber, "a/#", backpressure=True)
    tick = FlushTick(asyncio.get_running_loop(), Flusher(engine))
    with contextlib.ExitStack() as stack:
        far = []
        for port in (publisher, subscriber):
            near, other = socket.socketpair()
            stack.enter_context(other)
            for sock in (near, other):
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 40 * BODY if sock is other else BODY)
            link = PlainLink(near, parse("tcp://127.0.0.1:1"), engine, port, tick, lambda _: None, 1 << 20, bytearray())
            stack.callback(link.abort)
            far.append(other)
        sender, reader = far
        sent = b"".join(event(number, b"x" * (BODY - 16)) for number in range(1, 20))
        assert sender.send(define(1, "a/b") + sent) == len(define(1, "a/b") + sent)
        await until(lambda: engine.port_counters(publisher)["events_in"] == 19)
        arrived, answers = bytearray(), bytearray()
        await until(lambda: len(read(reader, arrived)) > len(sent))  # and its numbers of topic and issuer
        credit = frame(CREDIT, struct.pack(">Q", 19 * BODY + 20 * BODY))
        await until(lambda: credit in read(sender, answers))
