"""Connections that come and go without end: handshakes of TLS, reconnections, bad frames, replaced sessions."""

from __future__ import annotations

import contextlib
import secrets
import ssl

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.wire import dial
from chappe.errors import ChappeError
from chappe.wire import control
from chappe.wire.frames import PREAMBLE, Kind, encode_frame

BAD = (
    b"\x7f\x00\x00\x01x",  # no kind of frame
    b"\x01\x00\x00\x17" + bytes(23),  # a status record that is too short
    b"\x02\xff\xff\xff",  # 16 MiB announced
    b"\x02\x00\x00\x04" + bytes(4),  # half an event header
    encode_frame(Kind.CONTROL, b"\xc1"),  # no MessagePack
    encode_frame(Kind.CONTROL, b"\xdd\xff\xff\xff\xff"),  # an array of 2^32
    encode_frame(Kind.CONTROL, b"\x91" * 60_000),  # depth
    encode_frame(Kind.EVENT, (9).to_bytes(4, "big") + b"\x0b\x00\x00\x00" + bytes(4) + b"\xff\xff"),  # extension
)


class TlsFlood(Attack):
    """Full handshakes of TLS, and connections that end after the first flight."""

    name = "flood of TLS handshakes"
    who = ATTACKER

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        context = self.target.context()
        first = client_hello(context)
        while budget.left:
            try:
                sock = dial(self.target.tls, ATTACKER)
            except ChappeError:
                budget.act(refused=1)
                continue
            with contextlib.suppress(OSError, ssl.SSLError), sock:
                if budget.tally.acts % 4:
                    sock.sendall(first)
                    sock.recv(1)  # the node has computed its answer
                else:
                    context.wrap_socket(sock, server_hostname="127.0.0.1").close()
            budget.act()
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log(ATTACKER)


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first flight of a handshake: cheap to send again and again, dear to answer."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    return outgoing.read()


class ReconnectStorm(Attack):
    """Connects with a good token, subscribes, goes; at once again, with a new session each time."""

    name = "storm of reconnections"

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                with self.target.client(session=secrets.token_bytes(16)) as wire:
                    wire.send(control.Subscribe(id=1, pattern="mallory/#"))
                budget.act()
            except (ChappeError, OSError):
                budget.act(refused=1)
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallory")


class StrangerStorm(Attack):
    """Connects without a credential, under the name of an honest client."""

    name = "storm of strangers"
    who = ATTACKER

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        hello = control.Hello(role="client", name="honest", session=bytes(16), token="eyJhbGciOiJub25lIn0.e30.")
        opening = PREAMBLE + encode_frame(Kind.CONTROL, control.encode(hello))
        while budget.left:
            try:
                with dial(self.target.tcp, ATTACKER) as sock:
                    sock.sendall(opening)
                    while sock.recv(65_536):
                        pass
                budget.act()
            except (ChappeError, OSError):
                budget.act(refused=1)
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        missing = [] if evidence.grown("chappe_refused", "identity") else ["no connection was refused for its identity"]
        return missing + evidence.lacks_log(ATTACKER)


class BadFrames(Attack):
    """A good handshake, then bytes that are no frames."""

    name = "bad frames"

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            bad = BAD[budget.tally.acts % len(BAD)]
            try:
                with self.target.client() as wire:
                    wire.sock.sendall(bad)
                    if not wire.await_end(5.0):
                        budget.tally.succeeded.append(f"the node kept a connection that sent {bad[:16]!r}")
                budget.act()
            except (ChappeError, OSError):
                budget.act(refused=1)
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallory")
