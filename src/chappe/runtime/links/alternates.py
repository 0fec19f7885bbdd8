"""Other links to a peer that is connected: for a while, for a kind of data, of another transport (MR-047, MR-048)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field

import structlog

from chappe.engine._engine import Engine
from chappe.errors import ChappeError, ConfigError, LinkError, RefusedError, TimeoutExpired
from chappe.links.kinds import factories
from chappe.links.registry import LinkEntry, Notice, Transports
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.links.peers import PeerLink, Peers
from chappe.wire.control import Failed, Listing, Message, OpenLink

log = structlog.get_logger(__name__)

OPEN_S = 5.0  # for the other side to answer


@dataclass(slots=True, eq=False)
class Alternates:
    """Opens them, and ends them when their time is over."""

    engine: Engine
    peers: Peers
    datagrams: Datagrams
    transports: Transports
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, name: str, kind: str, lifetime_s: float = 0.0) -> LinkEntry:
        """A link of that kind to a peer; after `lifetime_s` (0: never) everything is as before.

        `udp` carries STATUS beside the stream; a stream takes the place of the one in use, and every event that was
        accepted arrives once, in order. RefusedError or LinkError says why there is none.
        """
        peer = self._connected(name)
        factory = factories().get(kind)
        if factory is None:
            raise RefusedError(f"there is no transport {kind!r}; one of {', '.join(factories())}")
        if lifetime_s < 0:
            raise RefusedError(f"a lifetime is positive, or 0 for ever, not {lifetime_s:g} s")
        if factory.stream:
            self._check_migration(peer, kind)
        entry = await (self._stream(peer, kind) if factory.stream else self._beside(peer, kind))
        entry.alternate = True
        if lifetime_s:
            self.transports.limit(entry, self.engine.mono_ns + round(lifetime_s * 1e9))
        return entry

    async def open_for(self, name: str, data: str, lifetime_s: float = 0.0) -> LinkEntry:
        """The best link that both ends have for `control`, `status` or `bulk` (MR-048); for ever, or for a while."""
        peer = self._connected(name)
        assert peer.connection is not None
        near = peer.connection.link.peer.is_loopback
        choice = self.peers.reaching.best(peer.config, peer.theirs, data, near)
        log.info("link chosen", peer=name, data=data, kind=choice.kind, reason=choice.reason)
        return await self.open(name, choice.kind, lifetime_s)

    def serve(self, port: int, request: OpenLink, send: Callable[[int, Message], None]) -> None:
        """Carry out a request of the client at that port; `send` gets the answer."""
        self._start(self._answer(port, request, send), f"open a link to {request.to}")

    async def _answer(self, port: int, request: OpenLink, send: Callable[[int, Message], None]) -> None:
        lifetime_s = request.lifetime_ns / 1e9
        try:
            if bool(request.kind) == bool(request.data):
                raise RefusedError("name the kind of transport, or the kind of data that it is for", "invalid")
            if request.data:
                entry = await self.open_for(request.to, request.data, lifetime_s)
            else:
                entry = await self.open(request.to, request.kind, lifetime_s)
        except (ChappeError, OSError) as error:
            send(port, Failed(id=request.id, code=_code(error), reason=str(error)))
        else:
            send(port, Listing(id=request.id, rows=(entry.row(),), total=1))

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tick(self, now_ns: int) -> None:
        """End links whose time is over."""
        for entry in self.transports.expired(now_ns):
            peer = self.peers.named(entry.peer)
            if peer is None or peer.connection is None:
                continue
            if entry.kind == "udp":
                self.datagrams.close_link(peer.port, now_ns, "its time is over")
            else:
                self._start(self._restore(peer), f"restore {peer.name}")

    async def stop(self) -> None:
        """Open no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, name: str) -> PeerLink:
        peer = self.peers.named(name)
        if peer is None or peer.connection is None or peer.manager:
            known = ", ".join(sorted(self.peers.channels())) or "none"
            raise RefusedError(f"{name!r} is no node that is connected (those are: {known})", "unknown")
        return peer

    def _check_migration(self, peer: PeerLink, kind: str) -> None:
        """Whether the factory of the link in use lists that kind (MR-045)."""
        assert peer.connection is not None
        current = peer.connection.link.kind
        allowed = factories()[current].migrates_to
        if kind != current and kind not in allowed:
            kinds = ", ".join(sorted(allowed)) or "nothing"
            reason = f"the traffic of a {current} link cannot move to {kind}; it can move to: {kinds}"
            raise RefusedError(reason, "invalid")

    async def _beside(self, peer: PeerLink, kind: str) -> LinkEntry:
        link = self.datagrams.link(peer.port)
        if link is not None and not link.closing:
            return link.entry
        assert peer.connection is not None
        if kind != "udp":
            raise RefusedError(f"{kind} is not opened beside a link to one peer")
        opened: asyncio.Future[LinkEntry] = asyncio.get_running_loop().create_future()

        def noticed(notice: Notice) -> None:
            new = notice.what == "opened" and (notice.entry.peer, notice.entry.kind) == (peer.name, kind)
            if new and not opened.done():
                opened.set_result(notice.entry)

        self.transports.watch(noticed)
        try:
            self.datagrams.ask(peer.port)
            async with asyncio.timeout(OPEN_S):
                return await opened
        except TimeoutError:
            raise TimeoutExpired(f"{peer.name} opened no datagrams within {OPEN_S:g} s") from None
        finally:
            self.transports.unwatch(noticed)

    async def _stream(self, peer: PeerLink, kind: str) -> LinkEntry:
        assert peer.connection is not None
        if peer.connection.link.kind == kind and peer.connection.entry is not None:
            return peer.connection.entry
        if peer.theirs is None:
            raise LinkError(f"{peer.name} has not said what else it can be reached by")
        near = peer.connection.link.peer.is_loopback
        choice = self.peers.reaching.alternative(peer.config, peer.theirs, kind, near)
        with _moving(peer):
            raw, welcome = await self.peers.open(peer.config, choice)
            connection = self.peers.carry_dialled(peer, raw, welcome, choice)
        if connection.entry is None:
            raise LinkError(f"the {kind} link to {peer.name} was lost at once")
        return connection.entry

    async def _restore(self, peer: PeerLink) -> None:
        """The connection that its configuration asks for, in place of the one whose time is over."""
        try:
            if peer.config.urls:
                with _moving(peer):
                    raw, welcome, choice = await self.peers.dial(peer.config)
                    self.peers.carry_dialled(peer, raw, welcome, choice)
        except (ChappeError, OSError) as error:
            log.warning("the alternate link stays", peer=peer.name, reason=str(error))


def _code(error: Exception) -> str:
    """Of a refusal: what was asked for is wrong, or cannot be had now."""
    if isinstance(error, RefusedError):
        return error.code or "invalid"
    return "invalid" if isinstance(error, ConfigError) else "unavailable"


@contextlib.contextmanager
def _moving(peer: PeerLink) -> Iterator[None]:
    """The other side ends the old connection when the new one is there: nobody dials for it meanwhile."""
    if peer.moving is not None:
        raise RefusedError(f"another link to {peer.name} is being opened; ask again")
    event = peer.moving = asyncio.Event()
    try:
        yield
    finally:
        peer.moving = None
        event.set()
