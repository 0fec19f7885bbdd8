"""Connections that begin a handshake and never end it (slowloris), on each kind of listener."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally, Target
from bench.hostile.evidence import Evidence
from bench.hostile.wire import dial
from chappe.errors import ChappeError
from chappe.wire.frames import PREAMBLE

OPEN_MAX = 400  # connections that are open at the same time
PAUSE_S = 0.005


class SlowHandshakes:
    """Connections that get a beginning, then a byte now and then."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._socks: list[socket.socket] = []

    def run(self, effort: Effort, port: int, opening: Callable[[], bytes]) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                sock = dial(port, ATTACKER)
            except ChappeError:
                budget.act(refused=1)
                continue
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.send(opening())
            self._socks.append(sock)
            budget.act()
            if len(self._socks) > OPEN_MAX:
                self._socks.pop(0).close()
            with contextlib.suppress(OSError):
                self._socks[secrets.randbelow(len(self._socks))].send(b"\x00")
            time.sleep(PAUSE_S)
        try:
            self._target.client("honest").close()
        except (ChappeError, OSError) as error:
            budget.tally.succeeded.append(f"an honest client is not let in: {error}")
        return budget.tally

    def close(self) -> None:
        for sock in self._socks:
            sock.close()
        self._socks.clear()


class SlowPlain(Attack):
    """The preamble and half a Hello."""

    name = "slow handshake, plain"
    who = ATTACKER

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.handshakes = SlowHandshakes(target)

    def strike(self, effort: Effort) -> Tally:
        return self.handshakes.run(effort, self.target.tcp, lambda: PREAMBLE + b"\x05\x00\x01\x00half a hello")

    def release(self) -> None:
        super().release()
        self.handshakes.close()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)


class SlowTls(Attack):
    """Half a ClientHello."""

    name = "slow handshake, TLS"
    who = ATTACKER

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.handshakes = SlowHandshakes(target)

    def strike(self, effort: Effort) -> Tally:
        return self.handshakes.run(
            effort, self.target.tls, lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)
        )

    def release(self) -> None:
        super().release()
        self.handshakes.close()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)


class SlowWebSocket(Attack):
    """Half a request to upgrade."""

    name = "slow handshake, WebSocket"
    who = ATTACKER

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.handshakes = SlowHandshakes(target)

    def strike(self, effort: Effort) -> Tally:
        return self.handshakes.run(
            effort, self.target.ws, lambda: b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nX-Slow: "
        )

    def release(self) -> None:
        super().release()
        self.handshakes.close()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)


class SlowParallel(Attack):
    """One connection of a parallel link whose others never come."""

    name = "slow handshake, parallel"
    who = ATTACKER

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.handshakes = SlowHandshakes(target)

    def strike(self, effort: Effort) -> Tally:
        return self.handshakes.run(
            effort, self.target.parallel, lambda: b"CHAPPAR1" + secrets.token_bytes(16) + bytes([0, 4])
        )

    def release(self) -> None:
        super().release()
        self.handshakes.close()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)
