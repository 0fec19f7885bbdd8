"""What an attack is: who attacks, what it does for a bounded time, and what the node must show of it."""

from __future__ import annotations

import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from bench.hostile.evidence import Evidence
from bench.hostile.wire import Wire
from chappe.errors import ChappeError

SEEN_S = 5.0  # longer than the handshake that an attacker may delay
ATTACKER = "127.0.0.66"  # attackers come from here, so that log and counters tell them from honest clients


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node listens and the credentials that attackers were given, or stole."""

    tcp: int
    tls: int
    ws: int
    parallel: int
    udp: int
    pki: str  # folder with ca.pem and the certificates of clients and of the malicious node
    tokens: dict[str, str]  # by the name of the client
    node: str = "target"

    def client(self, who: str = "mallory", *, name: str = "", session: bytes | None = None) -> Wire:
        """A connection of a client that proves itself by its token; `name` is what it calls itself."""
        session = session or secrets.token_bytes(16)
        return Wire.open(self.tcp, source=ATTACKER, name=name or who, token=self.tokens[who], session=session)

    def neighbour(self, name: str = "mallet") -> Wire:
        """A connection of the malicious node."""
        return Wire.open(self.tls, tls=self.context(name), source=ATTACKER, role="node", name=name)

    def context(self, name: str = "") -> ssl.SSLContext:
        """For TLS as that client or node, or as nobody."""
        context = ssl.create_default_context(cafile=f"{self.pki}/ca.pem")
        if name:
            context.load_cert_chain(f"{self.pki}/{name}.pem", f"{self.pki}/{name}.key")
        return context


class Effort(msgspec.Struct, frozen=True):
    """The bound of an attack: it ends when either is reached."""

    seconds: float = 1.0
    acts: int = 1_000_000


@dataclass(slots=True)
class Tally:
    """What an attack did."""

    acts: int = 0
    refused: int = 0  # of them that the node refused, in a way that the attacker notices
    succeeded: list[str] = field(default_factory=list)  # what it achieved and must not have


class Attack:
    """One attack; `strike` may be called several times between `prepare` and `release`."""

    name: ClassVar[str]
    who: ClassVar[str] = "mallory"  # what log and counters must name: an identity, or ATTACKER

    def __init__(self, target: Target) -> None:
        self.target = target
        self.wires: list[Wire] = []

    def prepare(self) -> None:
        """Connect, before anything is measured."""

    def strike(self, effort: Effort) -> Tally:
        """Attack until the effort is spent."""
        raise NotImplementedError

    def release(self) -> None:
        """Close what is open."""
        for wire in self.wires:
            wire.close()
        self.wires.clear()

    def unseen(self, evidence: Evidence) -> list[str]:
        """What the node should have shown of this attack and did not; most attacks must be in its counters."""
        return evidence.lacks_counter(self.who)

    def open(self, who: str = "mallory", *, session: bytes | None = None) -> Wire:
        """A connection as a client, closed by `release`."""
        wire = self.target.client(who, session=session)
        self.wires.append(wire)
        return wire


def unseen_after(attack: Attack, evidence: Evidence, within_s: float = SEEN_S) -> list[str]:
    """What the node still does not show of an attack after that time."""
    deadline = time.monotonic() + within_s
    while (missing := attack.unseen(evidence)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return missing


class Budget:
    """Counts acts against an effort."""

    def __init__(self, effort: Effort) -> None:
        self._until = time.monotonic() + effort.seconds
        self._acts = effort.acts
        self.tally = Tally()

    @property
    def left(self) -> bool:
        return self.tally.acts < self._acts and time.monotonic() < self._until

    def act(self, count: int = 1, *, refused: int = 0) -> None:
        self.tally.acts += count
        self.tally.refused += refused


class AttackError(ChappeError):
    """An attack could not be carried out: its result says nothing about the node."""
