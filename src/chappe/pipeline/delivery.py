"""Handing rows to a node: events under a given identity, values of variables over a connection that stays."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from typing import TYPE_CHECKING

import uvloop

from chappe.client.connecting import connect
from chappe.errors import ChappeError

if TYPE_CHECKING:
    from chappe.client._variables import Variable
    from chappe.client.arguments import ConnectArguments
    from chappe.client.sync import Client

_number = itertools.count(1)


class Node:
    """The mesh behind the address of a node; variables live as long as this does."""

    def __init__(self, url: str, token: str = "", tls: str = "", timeout_s: float = 30.0) -> None:
        self._url = url
        self._arguments: ConnectArguments = {"token": token or None, "tls": tls or None, "wait_s": timeout_s}
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._variables: dict[str, Variable] = {}

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        """Publish them as the session's events behind number `after`; returns when the node has all."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._events(session, after, resent, rows))

    def variables(self, rows: list[tuple[str, float, int]]) -> None:
        """Publish values of `publisher/variable`, stamped by their times."""
        client = self._connected()
        for name, value, created_ns in rows:
            variable = self._variables.get(name) or self._registered(client, name)
            if not variable.publish(value, created_ns):
                raise ChappeError(f"{self._url}: a value of {name} was not taken; the batch is sent again")
        client.flush(self._timeout_s)

    def close(self) -> None:
        """End the connection; its variables are withdrawn."""
        if self._client is not None:
            self._client.close(flush=False)
        self._client = None
        self._variables.clear()

    async def _events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        connecting = connect(self._url, **self._named())
        async with connecting.issuing(session) as client:
            client.core.go_on(after, resent)
            for topic, body in rows:
                await client.publish_wait(topic, body)
            await client.flush(self._timeout_s)

    def _named(self) -> ConnectArguments:
        """Of a connection with a name of its own."""
        arguments = self._arguments.copy()
        arguments["name"] = _name()
        return arguments

    def _connected(self) -> Client:
        from chappe.client.sync import connect as connected  # it starts a thread: only where variables are published

        if self._client is None:
            self._client = connected(self._url, **self._named())
        return self._client

    def _registered(self, client: Client, name: str) -> Variable:
        publisher, slash, variable = name.partition("/")
        if not (publisher and slash and variable):
            raise ChappeError(f"variable {name!r}: a name is PUBLISHER/VARIABLE")
        self._variables[name] = client.register(publisher, variable)
        return self._variables[name]


def _name() -> str:
    """Brokers take one client of a name at a time."""
    return f"pipeline-{socket.gethostname()}-{os.getpid()}-{next(_number)}"
