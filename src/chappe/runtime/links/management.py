"""Management links: connections to every process of a broker's role, whatever the names of these processes are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

import structlog

from chappe.core.sections import Peer
from chappe.errors import ChappeError, RefusedError
from chappe.links.backoff import Backoff
from chappe.links.link import Raw
from chappe.runtime.links.connections import Connection
from chappe.runtime.links.peers import PeerLink, Peers, agreed
from chappe.security.certificates import identity_of
from chappe.security.identity import Identity, dev_identity
from chappe.security.tls import expect
from chappe.wire.control import Welcome

log = structlog.get_logger(__name__)

HEARTBEAT_S = 2.0  # a broker that plans is silent for a while, and forwarding does not wait for it

Objection = Callable[[Identity], str | None]


class ManagementLinks:
    """Keeps a connection to each url for ever; the handshake tells who answers there.

    `objection(identity)` says why a process is not taken for a broker. Two urls may lead to the same process: it has
    one connection then.
    """

    def __init__(self, peers: Peers, objection: Objection) -> None:
        self._peers = peers
        self._objection = objection
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}  # url -> who answered there
        self._problems: dict[str, str] = {}
        self._turns: dict[str, asyncio.Lock] = {}  # by name: two urls of one process are not dialled at the same time

    def follow(self, urls: Iterable[str]) -> list[PeerLink]:
        """Dial these from now on; the links that are over with it, for the caller to remove."""
        wanted = dict.fromkeys(urls)
        for url in [url for url in self._tasks if url not in wanted]:
            self._tasks.pop(url).cancel()
        loop = asyncio.get_running_loop()
        for url in wanted:
            if url not in self._tasks:
                self._tasks[url] = loop.create_task(self._keep(url), name=f"broker {url}")
        named = {self._names.get(url) for url in wanted}
        return [peer for peer in self._peers if peer.manager and peer.name not in named]

    def problems(self) -> dict[str, str]:
        """Why the urls that have no connection have none."""
        return dict(self._problems)

    async def stop(self) -> None:
        """Dial no more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _keep(self, url: str) -> None:
        config = Peer(name="broker", url=url, heartbeat_s=HEARTBEAT_S)
        backoff = Backoff(random.random, base_s=config.reconnect_min_s, cap_s=config.reconnect_max_s)
        while True:
            if connection := self._connected(url):
                await connection.lost.wait()
                continue
            await asyncio.sleep(backoff.next_s())
            try:
                async with self._turns.setdefault(self._names.get(url, url), asyncio.Lock()):
                    # Over another url it may be connected by now: whoever connects ends the connection that is there.
                    connection = self._connected(url) or await self._connect(url, config)
            except (ChappeError, OSError) as error:
                if self._problems.get(url) != str(error):
                    self._problems[url] = str(error)
                    log.warning("broker not reached", url=url, reason=str(error))
                continue
            self._problems.pop(url, None)
            backoff.reset()
            await connection.lost.wait()

    def _connected(self, url: str) -> Connection | None:
        """The connection to the process that answered at a url, over whichever url it is."""
        known = self._peers.named(self._names.get(url, ""))
        return known.connection if known is not None else None

    async def _connect(self, url: str, config: Peer) -> Connection:
        raw, welcome, _ = await self._peers.dial(config)
        try:
            identity = self._identify(raw, welcome)
            peer = self._peers.manager(welcome.name, url)
        except BaseException:
            raw.close()
            raise
        self._names[url] = welcome.name
        return self._peers.carry(peer, raw, identity, agreed(config, welcome))

    def _identify(self, raw: Raw, welcome: Welcome) -> Identity:
        if raw.certificate_der is None:
            identity = dev_identity(welcome.name, "node")
        else:
            identity = expect(identity_of(raw.certificate_der), "node", welcome.name)
        problem = self._objection(identity)
        if problem:
            raise RefusedError(f"{raw.peer} is no broker of this node: {problem}")
        return identity
