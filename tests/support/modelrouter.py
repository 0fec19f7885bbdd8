"""A router without sockets or events: it obeys its broker into plain dictionaries and relays what its clients ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.wire.base import Answer, Command, Done, Failed, Message, Qos, Request, Variable
from chappe.wire.control import PrepareMode, SetMode
from chappe.wire.management import (
    Arrived,
    Channel,
    CommitMode,
    Condense,
    Configure,
    Displace,
    Entity,
    Flood,
    InformMode,
    Join,
    Lead,
    Left,
    LinkState,
    Names,
    Path,
    Place,
    Publish,
    Regranted,
    Reset,
    Search,
    Setup,
    Standby,
    SubscribeRequest,
    Teardown,
    Uncondense,
    Unpublish,
    UnsubscribeRequest,
    Withdrawn,
)


class ModelRouter:
    """One router (and edge): what it was told is in `paths`, `floods`, `functions`, `channels`, `mode`."""

    def __init__(self, name: str, send: Callable[[str, Message], None]) -> None:
        self.name = name
        self.send = send  # to a broker process by its name
        self.generation = 0
        self.brokers: dict[str, bool] = {}  # processes that are connected
        self.entities: dict[str, Entity] = {}
        self.links: set[str] = set()  # channels that are up: all it is told of, except
        self.failed: set[str] = set()
        self.requests: dict[int, Request] = {}  # without an answer yet
        self.answers: dict[int, Message] = {}
        self.notices: list[Message] = []
        self.refuses: set[type[Message]] = set()  # commands that it answers by Failed
        self.refuses_once: set[type[Message]] = set()
        self.silent: set[type[Message]] = set()  # commands that it does not answer
        self.next_id = 1
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is left of what brokers told it, and nobody is attached."""
        self.generation += 1
        self.issuer = f"{self.name}.{self.generation}".encode().ljust(16, b".")
        self.epoch = 0
        self.leader = ""
        self.mode = 0
        self.modes: list[tuple[str, int]] = []  # mode commands in the order they came
        self.commands: list[Command] = []
        self.channels: dict[str, Channel] = {}
        self.paths: dict[tuple[int, int], Path] = {}
        self.floods: dict[int, tuple[int, ...]] = {}
        self.functions: dict[int, Place] = {}
        self.searches: dict[str, None] = {}  # patterns that it searches for
        self.names: list[str] = []  # PUBLISHER/VARIABLE that it was named
        self.entities.clear()
        self.links.clear()
        self.requests.clear()
        self.brokers.clear()

    # links

    def connected(self, process: str) -> None:
        self.brokers[process] = True
        self._join(process)

    def lost(self, process: str) -> None:
        self.brokers.pop(process, None)
        if self.leader == process:
            self.leader = ""

    def _join(self, process: str) -> None:
        join = Join(router=self.name, issuer=self.issuer, epoch=self.epoch, entities=tuple(self.entities.values()),
                    links=tuple(sorted(self.links)))  # fmt: skip
        self.send(process, join)

    def receive(self, process: str, message: Message) -> None:
        match message:
            case Lead():
                self._lead(process, message)
            case Standby():
                if self.leader == process:
                    self.leader = ""
            case Command():
                self._obey(process, message)
            case Names():
                self.names += ["/".join(name) for name in message.variables]
            case Withdrawn() | Regranted():
                self.notices.append(message)
            case Answer() if message.id in self.requests:
                del self.requests[message.id]
                self.answers[message.id] = message

    def _lead(self, process: str, lead: Lead) -> None:
        if lead.epoch < self.epoch or (lead.epoch == self.epoch and process == self.leader):
            return
        self.epoch, self.leader = lead.epoch, process
        self._join(process)
        for request in self.requests.values():
            self.send(process, request)
        if self.searches:
            self.send(process, Search(begin=tuple(self.searches)))

    # commands

    def _obey(self, process: str, command: Command) -> None:
        if command.epoch < self.epoch:
            self.send(process, Failed(id=command.id, reason=f"epoch {command.epoch} is over", code="stale"))
            return
        self.epoch = command.epoch
        if type(command) in self.refuses or type(command) in self.refuses_once:
            self.refuses_once.discard(type(command))
            self.send(process, Failed(id=command.id, reason=f"{self.name} has no room", code="limit"))
            return
        self.commands.append(command)
        self._apply(command)
        if type(command) not in self.silent:
            self.send(process, Done(id=command.id))

    def _apply(self, command: Command) -> None:
        match command:
            case Configure():
                self.channels = {channel.peer: channel for channel in command.channels}
                for peer in self.channels:
                    if peer not in self.links and peer not in self.failed:
                        self.link(peer, True)
            case Reset():
                self.paths, self.floods, self.functions = {}, {}, {}
            case Setup():
                self.paths.update({(path.variable.variable_id, path.path): path for path in command.paths})
            case Teardown():
                for key in command.paths:
                    self.paths.pop(key, None)
            case Flood():
                self.floods[command.variable.variable_id] = command.levels
                if not any(command.levels):
                    del self.floods[command.variable.variable_id]
            case Place():
                self.functions[command.output.variable_id] = command
            case Displace():
                self.functions.pop(command.variable_id, None)
            case SetMode():
                self.mode = command.mode
                self.modes.append(("SetMode", command.mode))
            case InformMode() | PrepareMode() | CommitMode():
                self.modes.append((type(command).__name__, command.mode))

    # clients of this edge

    def attach(self, name: str, session: str = "1") -> Entity:
        """A client connects."""
        entity = Entity(name, f"{name}.{session}".encode().ljust(16, b"."))
        self.entities[name] = entity
        self._send(Arrived(entity=entity))
        return entity

    def detach(self, name: str) -> None:
        """Its connection is lost."""
        self._send(Left(entity=self.entities.pop(name)))

    def link(self, peer: str, up: bool) -> None:
        """A channel came up or failed."""
        (self.links.add if up else self.links.discard)(peer)
        (self.failed.discard if up else self.failed.add)(peer)
        self._send(LinkState(peer=peer, up=up))

    def ask(self, kind: Callable[..., Request], **fields: Any) -> int:
        """Send a request to the leader, or keep it until there is one; its answer will be in `answers`."""
        request = kind(id=self.next_id, **fields)
        self.next_id += 1
        self.requests[request.id] = request
        self._send(request)
        return request.id

    def publish(self, entity: Entity, name: str, interval_ns: int = 10_000_000, **fields: Any) -> int:
        """`name` is `publisher/variable`."""
        publisher, _, variable = name.partition("/")
        fields = {"type": "float", "rate_num": 1, "rate_den": interval_ns, "priority": 3, "options": 0, **fields}
        return self.ask(Publish, entity=entity, variable=Variable(0, publisher, variable, **fields))

    def unpublish(self, entity: Entity, variable_id: int) -> int:
        return self.ask(Unpublish, entity=entity, variable_id=variable_id)

    def subscribe(self, entity: Entity, name: str, *qos: Qos, **fields: Any) -> int:
        publisher, _, variable = name.partition("/")
        return self.ask(
            SubscribeRequest, entity=entity, publisher=publisher, variable=variable, qos=qos or (Qos(),), **fields
        )

    def unsubscribe(self, entity: Entity, variable_id: int) -> int:
        return self.ask(UnsubscribeRequest, entity=entity, variable_id=variable_id)

    def search(self, *patterns: str) -> None:
        """Search for variables, perhaps again."""
        self.searches.update(dict.fromkeys(patterns))
        self._send(Search(begin=patterns))

    def search_no_more(self, *patterns: str) -> None:
        for pattern in patterns:
            del self.searches[pattern]
        self._send(Search(end=patterns))

    def condense(self, entity: Entity, function: Any) -> int:
        return self.ask(Condense, entity=entity, function=function)

    def uncondense(self, entity: Entity, name: str) -> int:
        publisher, _, variable = name.partition("/")
        return self.ask(Uncondense, entity=entity, publisher=publisher, variable=variable)

    def _send(self, message: Message) -> None:
        if self.leader:
            self.send(self.leader, message)
