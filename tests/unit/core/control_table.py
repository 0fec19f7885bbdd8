"""A control protocol with a real engine and no socket."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Any

from chappe.core.build import Membership, build_node
from chappe.core.mesh_settings import settings_of
from chappe.core.sections import BrokerLink, Config, Limits, Measure, Mesh, NodeSection, Peer, Route
from chappe.core.session import Session
from chappe.machine import Audit, AuditIntent, AuditWritten, Connected, Disconnected, Effect, FreePort, Send
from chappe.security.config import Rule
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.wire import control, management

SECOND = 1_000_000_000


class Table:
    """Ports by name; `peers` are connected at the start, `paths` are patterns that go to them.

    With `managed` it is a router of the leaf broker `leaf`, to whose processes `broker` connects it. Of peers that
    state what they want of variables `capabilities` says so. `meshed`: it is in a mesh.
    """

    def __init__(
        self, peers: tuple[str, ...] = (), paths: dict[str, tuple[str, ...]] | None = None, managed: bool = False,
        capabilities: tuple[str, ...] = (), rules: Sequence[Rule] = (), meshed: bool = False, **limits: int,
    ) -> None:  # fmt: skip
        self.now_ns = 1_000 * SECOND
        routes = tuple(Route(variables=pattern, to=to) for pattern, to in (paths or {}).items())
        self.config = Config(
            node=NodeSection(name="n1", leaf=3), peer=tuple(Peer(name=name) for name in peers), path=routes,
            broker=BrokerLink(name="leaf", urls=()) if managed else None, limits=Limits(**limits),
            mesh=Mesh() if meshed else None,
        )  # fmt: skip
        membership = Membership(settings_of(self.config.mesh, Measure()), random.Random(1)) if meshed else None
        self.configured: list[management.Channel] = []
        book = RuleBook.of(rules) if rules else RuleBook.open()
        self.core = build_node(
            self.config, process=bytes(16), book=book, carry_out=lambda effects: None, configure=self.configure,
            membership=membership,
        )  # fmt: skip
        self.engine, self.variables, self.control = self.core.engine, self.core.variables, self.core.control
        self.paths, self.commands, self.edge = self.core.paths, self.core.commands, self.core.edge
        self.ports: dict[str, int] = {}
        for name in peers:
            port = self.ports[name] = self.core.ports.open(Peer(name=name))
            self.engine.resume_port(port)
            self.connect(name, capabilities)

    def connect(
        self, name: str, capabilities: tuple[str, ...] = (), fresh: bool = True
    ) -> list[tuple[str, control.Message]]:
        """A connection to a peer is there; `fresh`: to a process that remembers nothing. What is sent because of it."""
        port = self.ports[name]
        self.core.sessions.open(Session(port, name, "node", dev_identity(name, "node")))
        effects = self.core.receive(port, Connected(name, fresh=fresh, capabilities=capabilities), self.now_ns)
        while self.variables.busy:
            effects += self.core.work()
        return self.sent(effects)

    def disconnect(self, name: str) -> None:
        """The connection to a peer is lost; its port stays."""
        self.core.receive(self.ports[name], Disconnected(), self.now_ns)

    def configure(self, channels: Sequence[management.Channel]) -> str:
        self.configured = list(channels)
        return ""

    def client(self, name: str, session: bytes = b"") -> int:
        self.attach(name, session or secrets.token_bytes(16))
        return self.ports[name]

    def attach(self, name: str, session: bytes, called: str = "", **fields: Any) -> list[tuple[str, control.Message]]:
        """A client connects; `called`: what it says its name is. The answer is what is sent because of it."""
        port = self.ports[name] = self.engine.open_port(issuer=session)
        here = Session(port, called or name, "client", dev_identity(called or name, "client"), session, **fields)
        self.core.sessions.open(here)
        return self.sent(self.core.receive(port, Connected(name), self.now_ns))

    def broker(self, name: str) -> list[tuple[str, control.Message]]:
        """The connection to a process of the broker's role is there."""
        port = self.ports[name] = self.engine.open_port(peer=True, retain=True)
        session = Session(port, name, "node", dev_identity(name, "node"), bytes(16), manager=True)
        self.core.sessions.open(session)
        return self.sent(self.core.receive(port, Connected(name), self.now_ns))

    def lose(self, name: str) -> list[tuple[str, control.Message]]:
        """A connection is over; the answer is what others are told."""
        port = self.ports[name]
        effects = self.core.receive(port, Disconnected(), self.now_ns)
        while self.variables.busy:
            effects += self.core.work() + self.control.flush()
        del self.ports[name]
        if FreePort(port) in effects:
            self.engine.close_port(port)
            while not self.engine.free_port(port):
                pass
        return self.sent(effects)

    def tell(self, name: str, message: control.Message) -> list[tuple[str, control.Message]]:
        """What is sent because of a message, with the names of the receivers."""
        effects = self._done(self.core.receive(self.ports[name], message, self.now_ns))
        return self.sent(effects + self.control.flush())

    def ask(self, name: str, kind: type[control.Request], **fields: Any) -> Any:
        """The one answer to a request."""
        (answer,) = [message for to, message in self.tell(name, kind(id=7, **fields)) if to == name]
        return answer

    def leave(self, name: str) -> None:
        """A client's connection is over and everything about it done."""
        port = self.ports.pop(name)
        self.engine.close_port(port)
        effects = self.core.receive(port, Disconnected(), self.now_ns)
        while self.variables.busy:
            effects += self.core.work() + self.control.flush()
        assert FreePort(port) in effects

    def pass_time(self, seconds: float) -> list[tuple[str, control.Message]]:
        self.now_ns += round(seconds * SECOND)
        return self.sent(self.core.tick(self.now_ns))

    def sent(self, effects: list[Effect]) -> list[tuple[str, control.Message]]:
        """Messages with the names of their receivers; the answer to a command leaves after it is written down."""
        names = {port: name for name, port in self.ports.items()}
        sends = [item.answer if isinstance(item, Audit) else item for item in effects]
        return [(names[int(item.to)], item.message) for item in sends if isinstance(item, Send) and item.to in names]

    def _done(self, effects: list[Effect]) -> list[Effect]:
        """What follows when intents are written down."""
        found: list[Effect] = []
        for item in effects:
            if isinstance(item, AuditIntent):
                written = AuditWritten(item.number)
                found += self._done(self.core.receive(int(item.source), written, self.now_ns))
            else:
                found.append(item)
        return found

    def known(self) -> set[str]:
        return {"/".join(entry.name) for entry in self.variables.directory.walk()}
