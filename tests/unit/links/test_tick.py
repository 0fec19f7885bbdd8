from __future__ import annotations

import asyncio
import socket

import pytest

from chappe.links._socket import Flusher, StreamSocket
from chappe.links.tick import FlushTick
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until


class Witness:
    """A carrier that keeps what it is told."""

    def __init__(self) -> None:
        self.full: list[int] = []
        self.errors: list[Exception] = []

    def want_write(self, port: int) -> None:
        self.full.append(port)

    def failed(self, port: int, error: Exception) -> None:
        self.errors.append(error)


async def test_one_tick_flushes_once_and_runs_before_first() -> None:
    tape = Tape()
    flusher = Flusher(tape)
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        tick = FlushTick(asyncio.get_running_loop(), flusher, lambda: tape.queue(0, b"answer"))
        tick.bind(0, Witness(), StreamSocket(tape, 0, one.fileno()))
        tape.queue(0, b"queued, ")
        for _ in range(100):
            tick.soon()
        await until(lambda: flusher.flushes > 0)
        assert flusher.flushes == 1
        assert other.recv(100) == b"queued, answer"


async def test_a_defect_in_before_does_not_stop_the_flush() -> None:
    tape = Tape()
    flusher = Flusher(tape)
    defects: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: defects.append(context["exception"]))
    written: list[bool] = []

    def broken() -> None:
        raise RuntimeError("a defect")

    tick = FlushTick(asyncio.get_running_loop(), flusher, broken)
    tick.bind(0, Witness(), lambda: not written.append(True))
    await until(lambda: len(written) == 1)
    tick.soon()
    await until(lambda: flusher.flushes == 2)
    assert [str(defect) for defect in defects] == ["a defect"] * 2


async def test_carriers_hear_of_full_and_broken_sockets() -> None:
    tape = Tape()
    tick = FlushTick(asyncio.get_running_loop(), Flusher(tape))
    full, broken = Witness(), Witness()
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        tick.bind(0, full, StreamSocket(tape, 0, one.fileno()))
        tick.bind(1, broken, StreamSocket(tape, 1, -1))
        tape.queue(0, bytes(5_000_000))
        tape.queue(1, b"x")
        await until(lambda: bool(full.full and broken.errors))
        assert full.full == [0]
        assert isinstance(broken.errors[0], OSError)


async def test_an_old_carrier_does_not_take_the_port_from_a_new_one() -> None:
    tape = Tape()
    tick = FlushTick(asyncio.get_running_loop(), Flusher(tape))
    old, new = Witness(), Witness()
    written: list[bool] = []
    tick.bind(0, old, lambda: pytest.fail("the old one is gone"))
    tick.bind(0, new, lambda: not written.append(True))
    tick.unbind(0, old)
    await until(lambda: bool(written))
    tick.unbind(0, new)
    written.clear()
    tape.queue(0, b"waits")
    tick.soon()
    await until(lambda: tick.flusher.flushes == 2)
    assert written == []
