"""A broker process whose every word is said by the test: a node with a role that only listens and keeps."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from chappe.core.roles import Host
from chappe.core.session import Session
from chappe.machine import NEVER, Address, AuditWritten, Connected, Disconnected, Effect, Input, Send
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.base import Answer, Command, Done, Failed, Message, Request
from chappe.wire.management import Join, Lead, Standby

Kind = TypeVar("Kind", bound=Message)


class ScriptedBroker:
    """One process of the role `leaf`; `inbox` is what routers said and nobody has taken yet, as (router, message)."""

    def __init__(self, epoch: int = 1, name: str = "leaf-1", leads: bool = True) -> None:
        self.epoch, self.name, self.leads = epoch, name, leads
        self.inbox: list[tuple[str, Message]] = []
        self.node: Node
        self._ports: dict[str, int] = {}
        self._arrived = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._number = 0

    @classmethod
    async def begin(
        cls, url: str = "tcp://127.0.0.1:0", toml: str = "", dev: bool = True, **how: Any
    ) -> ScriptedBroker:
        broker = cls(**how)
        text = f'{toml}\n[node]\nname = "{broker.name}"\n' + (f'[[listen]]\nurl = "{url}"\n' if url else "")
        broker.node = Node(parse(text), dev=dev, role=lambda sessions, access: broker)
        await broker.node.start()
        return broker

    @property
    def url(self) -> str:
        return self.node.url

    async def end(self) -> None:
        await self.node.stop(drain=False)

    # --- what the test says

    def say(self, router: str, message: Message) -> None:
        self.node.shell.perform([Send(self._ports[router], message)])
        self.node.tick.soon()

    def lead(self, *routers: str) -> None:
        for router in routers or tuple(self._ports):
            self.say(router, Lead(role="leaf", epoch=self.epoch))

    def answer(self, router: str, request: Request, kind: type[Answer], **fields: Any) -> None:
        self.say(router, kind(id=request.id, **fields))

    async def command(self, router: str, kind: type[Command], **fields: Any) -> Message:
        """The answer to a command."""
        self._number += 1
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = waiting
        self.say(router, kind(id=self._number, epoch=self.epoch, command=self._number, **fields))
        async with asyncio.timeout(30):
            return await waiting

    async def order(self, router: str, kind: type[Command], **fields: Any) -> None:
        answer = await self.command(router, kind, **fields)
        assert isinstance(answer, Done), answer

    async def heard(self, router: str, kind: type[Kind], **fields: Any) -> Kind:
        """The next message of that kind and these fields from a router; what came before stays."""
        async with asyncio.timeout(30):
            while True:
                for item in self.inbox:
                    of, message = item
                    if of == router and isinstance(message, kind) and _fits(message, fields):
                        self.inbox.remove(item)
                        return message
                self._arrived.clear()
                await self._arrived.wait()

    # --- a role of a node

    async def open(self, host: Host) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def takes(self, message: Message) -> bool:
        return not isinstance(message, control.Goodbye)

    def receive(self, source: Address, message: Input | AuditWritten, now_ns: int) -> list[Effect]:
        assert isinstance(source, int)
        session = self.node.core.sessions.get(source)
        if session is None or isinstance(message, AuditWritten):
            return []
        match message:
            case Connected():
                self._ports[session.name] = source
                return []
            case Disconnected():
                if self._ports.get(session.name) == source:
                    del self._ports[session.name]
                return []
        return self._hear(session, message)

    def _hear(self, session: Session, message: Message) -> list[Effect]:
        if isinstance(message, Done | Failed) and message.id in self._answers:
            self._answers.pop(message.id).set_result(message)
            return []
        self.inbox.append((session.name, message))
        self._arrived.set()
        if isinstance(message, Join):
            said = Lead(role="leaf", epoch=self.epoch) if self.leads else Standby(role="leaf")
            return [Send(session.port, said)]
        return []

    def tick(self, now_ns: int) -> list[Effect]:
        return []

    def next_tick(self) -> int:
        return NEVER

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        return None

    def gauges(self) -> dict[str, float]:
        return {}


def _fits(message: Message, fields: dict[str, Any]) -> bool:
    return all(getattr(message, name) == value for name, value in fields.items())
