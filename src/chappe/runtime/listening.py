"""The addresses that a node listens on."""

from __future__ import annotations

from chappe.core.sections import Listen
from chappe.links.address import Address, parse
from chappe.links.kinds import encrypts
from chappe.links.link import Raw
from chappe.links.listen import Listener, listen
from chappe.links.options import LinkOptions
from chappe.links.tick import FlushTick
from chappe.runtime.gate import Gate
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.reception import Admit, Reception
from chappe.security.credentials import Credentials


class Listening:
    """Accepts connections for the reception; UDP addresses are for data links."""

    def __init__(self, reception: Reception, datagrams: Datagrams, gate: Gate, credentials: Credentials) -> None:
        self._reception = reception
        self._datagrams = datagrams
        self._gate = gate
        self._credentials = credentials
        self._listeners: list[Listener] = []
        self._of_nodes: set[Listener] = set()

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the real port numbers."""
        return [listener.address for listener in self._listeners] + self._datagrams.addresses

    @property
    def for_nodes(self) -> tuple[str, ...]:
        """By which of them other nodes connect."""
        return tuple(str(listener.address) for listener in self._listeners if listener in self._of_nodes)

    async def open(self, entry: Listen, handshake_s: float, tick: FlushTick) -> None:
        """Listen on an address of the file; LinkError if it cannot be had."""
        address = parse(entry.url)
        options = LinkOptions(
            send_buffer=entry.send_buffer, receive_buffer=entry.receive_buffer, backlog=entry.backlog,
            handshake_timeout_s=handshake_s, gate=self._gate,
        )  # fmt: skip
        if address.scheme == "udp":
            await self._datagrams.listen(address, options, tick)
            return
        tls = self._credentials.server if encrypts(address) else None

        async def accepted(raw: Raw) -> None:
            await self._reception.accept(raw, entry)

        self._listeners.append(await listen(address, accepted, tls=tls, options=options))
        if "node" in entry.roles:
            self._of_nodes.add(self._listeners[-1])

    async def accept_worker(self, raw: Raw, admit: Admit) -> None:
        """A connection of the worker of this node."""
        await self._reception.accept(raw, Listen(url=str(raw.peer), roles=("client",)), admit)

    async def close(self) -> None:
        """Accept no more."""
        for listener in self._listeners:
            await listener.close()

    def counters(self) -> dict[str, dict[str, int]]:
        """By address."""
        found = {str(listener.address): listener.counters() for listener in self._listeners}
        return found | self._datagrams.socket_counters()
