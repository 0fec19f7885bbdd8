"""Connections that begin a handshake and never end it (slowloris), on each kind of listener."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from typing import ClassVar

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.wire import dial
from chappe.errors import ChappeError
from chappe.wire.frames import PREAMBLE

OPEN_MAX = 400  # connections that are open at the same time
PAUSE_S = 0.005


class SlowHandshake(Attack):
    """Opens connections, sends a beginning, then a byte now and then."""

    who = ATTACKER
    transport: ClassVar[str]  # field of the target
    beginning: ClassVar[bytes]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.socks: list[socket.socket] = []

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                sock = dial(getattr(self.target, self.transport), ATTACKER)
            except ChappeError:
                budget.act(refused=1)
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.send(self.opening())
            self.socks.append(sock)
            budget.act()
            if len(self.socks) > OPEN_MAX:
                self.socks.pop(0).close()
            with contextlib.suppress(OSError):
                self.socks[secrets.randbelow(len(self.socks))].send(b"\x00")
            time.sleep(PAUSE_S)
        try:
            self.target.client("honest").close()
        except (ChappeError, OSError) as error:
            budget.tally.succeeded.append(f"an honest client is not let in: {error}")
        return budget.tally

    def opening(self) -> bytes:
        return self.beginning

    def release(self) -> None:
        super().release()
        for sock in self.socks:
            sock.close()
        self.socks.clear()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)


class SlowPlain(SlowHandshake):
    """The preamble and half a Hello."""

    name = "slow handshake, plain"
    transport = "tcp"
    beginning = PREAMBLE + b"\x05\x00\x01\x00half a hello"


class SlowTls(SlowHandshake):
    """Half a ClientHello."""

    name = "slow handshake, TLS"
    transport = "tls"
    beginning = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)


class SlowWebSocket(SlowHandshake):
    """Half a request to upgrade."""

    name = "slow handshake, WebSocket"
    transport = "ws"
    beginning = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nX-Slow: "


class SlowParallel(SlowHandshake):
    """One connection of a parallel link whose others never come."""

    name = "slow handshake, parallel"
    transport = "parallel"
    beginning = b"CHAPPAR1"

    def opening(self) -> bytes:
        return self.beginning + secrets.token_bytes(16) + bytes([0, 4])
