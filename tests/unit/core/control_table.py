"""A control protocol with a real engine and no socket."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from chappe.core.commands import Commands
from chappe.core.control import Control
from chappe.core.edge import Edge
from chappe.core.listing import Rows
from chappe.core.outputs import Free, Intend, Output, Record, Send
from chappe.core.paths import PathTable
from chappe.core.sections import Config, Limits, Peer, Route
from chappe.core.session import Session
from chappe.core.variables import Variables, static_routes
from chappe.engine._engine import Engine
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.wire import control, management

SECOND = 1_000_000_000


class Table:
    """Ports by name; `peers` are connected at the start, `paths` are patterns that go to them.

    With `managed` it is a router of the leaf broker `leaf`, to whose processes `broker` connects it.
    """

    def __init__(
        self, peers: tuple[str, ...] = (), paths: dict[str, tuple[str, ...]] | None = None, managed: bool = False,
        **limits: int,
    ) -> None:  # fmt: skip
        self.now_ns = 1_000 * SECOND
        self.engine = Engine()
        self.ports = {name: self.engine.open_port(peer=True, retain=True) for name in peers}
        routes = tuple(Route(variables=pattern, to=to) for pattern, to in (paths or {}).items())
        self.config = Config(peer=tuple(Peer(name=name) for name in peers), path=routes)
        self.variables = Variables(self.engine, 3, static_routes(self.config), self.ports.get, 60 * SECOND)
        self.paths = PathTable(self.engine, self.variables, self.ports.get)
        self.configured: list[management.Channel] = []
        self.commands = Commands(self.engine, self.paths, self.configure)
        self.edge = None
        if managed:
            self.edge = Edge("n1", bytes(16), "leaf", 60 * SECOND, self.commands.fence, lambda: sorted(peers))
        self.control = Control(
            "n1", "n1", self.engine, self.variables, self.commands, RuleBook.open(), Limits(**limits),
            lambda request, session: Rows(iter(())), edge=self.edge,
        )  # fmt: skip
        for name, port in self.ports.items():
            self.control.open(Session(port, name, "node", dev_identity(name, "node")))
            self.variables.peer_up(port, True, self.now_ns)

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
        self.control.open(here)
        return self.sent(self.control.opened(here, self.now_ns))

    def broker(self, name: str) -> list[tuple[str, control.Message]]:
        """The connection to a process of the broker's role is there."""
        port = self.ports[name] = self.engine.open_port(peer=True, retain=True)
        session = Session(port, name, "node", dev_identity(name, "node"), bytes(16), manager=True)
        self.control.open(session)
        return self.sent(self.control.opened(session, self.now_ns))

    def lose(self, name: str) -> list[tuple[str, control.Message]]:
        """A connection is over; the answer is what others are told."""
        port = self.ports[name]
        outputs = self.control.close(port, self.now_ns)
        while self.variables.busy:
            outputs += self.control.work() + self.control.flush()
        del self.ports[name]
        if Free(port) in outputs:
            self.engine.close_port(port)
            while not self.engine.free_port(port):
                pass
        return self.sent(outputs)

    def tell(self, name: str, message: control.Message) -> list[tuple[str, control.Message]]:
        """What is sent because of a message, with the names of the receivers."""
        outputs = self._done(self.control.receive(self.ports[name], message, self.now_ns))
        return self.sent(outputs + self.control.flush())

    def ask(self, name: str, kind: type[control.Request], **fields: Any) -> Any:
        """The one answer to a request."""
        (answer,) = [message for to, message in self.tell(name, kind(id=7, **fields)) if to == name]
        return answer

    def leave(self, name: str) -> None:
        """A client's connection is over and everything about it done."""
        port = self.ports.pop(name)
        self.engine.close_port(port)
        outputs = self.control.close(port, self.now_ns)
        while self.variables.busy:
            outputs += self.control.work() + self.control.flush()
        assert Free(port) in outputs

    def pass_time(self, seconds: float) -> list[tuple[str, control.Message]]:
        self.now_ns += round(seconds * SECOND)
        return self.sent(self.control.tick(self.now_ns))

    def sent(self, outputs: list[Output]) -> list[tuple[str, control.Message]]:
        """Messages with the names of their receivers; the answer to a command leaves after it is written down."""
        names = {port: name for name, port in self.ports.items()}
        sends = [item.answer if isinstance(item, Record) else item for item in outputs]
        return [(names[item.port], item.message) for item in sends if isinstance(item, Send) and item.port in names]

    def _done(self, outputs: list[Output]) -> list[Output]:
        """What follows when intents are written down."""
        found: list[Output] = []
        for item in outputs:
            found += self._done(item.proceed(self.now_ns)) if isinstance(item, Intend) else [item]
        return found

    def known(self) -> set[str]:
        return {"/".join(entry.name) for entry in self.variables.directory.walk()}
