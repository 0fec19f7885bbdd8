"""A control protocol with a real engine and no socket."""

from __future__ import annotations

import secrets
from typing import Any

from chappe.engine._engine import Engine
from chappe.node.commands import Commands
from chappe.node.outputs import Free, Output, Send
from chappe.node.sections import Config, Limits, Peer, Route
from chappe.node.sessions import Control, Session
from chappe.node.variables import Variables, static_routes
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.wire import control

SECOND = 1_000_000_000


class Table:
    """Ports by name; `peers` are connected at the start, `paths` are patterns that go to them."""

    def __init__(
        self, peers: tuple[str, ...] = (), paths: dict[str, tuple[str, ...]] | None = None, **limits: int
    ) -> None:
        self.now_ns = 1_000 * SECOND
        self.engine = Engine()
        self.ports = {name: self.engine.open_port(peer=True, retain=True) for name in peers}
        routes = tuple(Route(variables=pattern, to=to) for pattern, to in (paths or {}).items())
        self.config = Config(peer=tuple(Peer(name=name) for name in peers), path=routes)
        self.variables = Variables(self.engine, 3, static_routes(self.config), self.ports.get, 60 * SECOND)
        self.control = Control(
            "n1", self.engine, self.variables, Commands(self.engine, self.ports.get), RuleBook.open(),
            Limits(**limits), lambda request, session: ([], 0),
        )  # fmt: skip
        for name, port in self.ports.items():
            self.control.open(Session(port, name, "node", dev_identity(name, "node")))
            self.variables.peer_up(port, True, self.now_ns)

    def client(self, name: str) -> int:
        port = self.ports[name] = self.engine.open_port(session=secrets.token_bytes(16))
        self.control.open(Session(port, name, "client", dev_identity(name, "client")))
        return port

    def tell(self, name: str, message: control.Message) -> list[tuple[str, control.Message]]:
        """What is sent because of a message, with the names of the receivers."""
        return self.sent(self.control.receive(self.ports[name], message, self.now_ns) + self.control.flush())

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
        names = {port: name for name, port in self.ports.items()}
        return [(names[item.port], item.message) for item in outputs if isinstance(item, Send)]

    def known(self) -> set[str]:
        return {"/".join(entry.name) for entry in self.variables.directory}
