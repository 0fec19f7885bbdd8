"""One connection of a client, made again when it is lost, and what the node sends on it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Self

import structlog

from chappe.client._inbox import Subscription
from chappe.client._status import StatusStream
from chappe.client.datagram import DataLink
from chappe.client.groups import Group
from chappe.client.parts import build_parts
from chappe.client.requests import refusal
from chappe.client.session import ConnectOptions, Session, State
from chappe.client.topics import Topic, public_topic
from chappe.errors import ChappeError, DeniedError, LinkError, RefusedError, TimeoutExpired
from chappe.wire import control
from chappe.wire.events import TopicName
from chappe.wire.management import ModeState, Withdrawn

log = structlog.get_logger("chappe.client")
CLOSE_FLUSH_S = 5.0
DENIALS = 8  # topics that the error of a `flush` names
Queue = Subscription | StatusStream


class Connection:
    """What every call of a client rests on: the session, requests, and all that is asked for again after a loss.

    Callbacks that may be set: `on_disconnect(error)`, `on_reconnect()`, `on_loss(status, events)` when the node dropped
    for this client, `on_full(queue)` when a local queue dropped for the first time, `on_mode(mode, next)` when a mode
    is coming or in force, `on_error(error)` for what no call can raise: a denied topic, a variable that could not be
    registered again or was withdrawn, an exception in a callback.
    """

    def __init__(self, options: ConnectOptions) -> None:
        self.name = options.name
        self.session_number = secrets.token_bytes(16)  # a secret: with it and its identity one publishes as this client
        self.timeout_s = options.timeout_s
        self.durable_s = options.durable_s
        self.on_disconnect: Callable[[Exception | None], None] | None = None
        self.on_reconnect: Callable[[], None] | None = None
        self.on_loss: Callable[[int, int], None] | None = None
        self.on_full: Callable[[Queue], None] | None = None
        self.on_mode: Callable[[int, int], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        parts = build_parts(self, options)
        self.core = parts.core
        self.publish = parts.core.publish  # the compiled methods themselves: nothing in between
        self.publish_many = parts.core.publish_many
        self.durable = parts.durable
        self.groups: dict[str, Group] = {}
        self.reporting = parts.reporting
        self._requests, self._exchange, self._node = parts.requests, parts.exchange, parts.node
        self._published, self._watched, self._floods = parts.published, parts.watched, parts.floods
        self._patterns = parts.patterns
        self._subscribed, self._replies = parts.subscribed, parts.replies
        self._cells = parts.cells
        self._options = options
        self._data: DataLink | None = None
        self._session: Session | None = None
        self._mode, self._next_mode = 0, 0
        self._denials: dict[Topic, DeniedError] = {}  # that no `flush` has raised yet
        self._refused = (0, 0)  # events that the node did not take and that an error was raised about
        self._excused = 0  # of these, by calls that waited for the event itself
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._held: set[Queue] = set()
        self._losses = (0, 0)

    # --- connection

    async def start(self) -> Self:
        """Connect; LinkError, RefusedError, VersionError or TimeoutExpired say why it could not be."""
        self.core.on_control = self._control
        self.core.on_progress = self._progress
        self.core.on_full = self._queue_full
        self.core.on_failure = self.report
        self._session = Session(self.core, self._options, self._hello, self)
        try:
            await self._session.start()
            await self._open_datagrams()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aenter__(self) -> Self:
        return self if self._session is not None else await self.start()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close(flush=error is None)

    @property
    def state(self) -> State:
        """connecting, connected, reconnecting or closed."""
        return "connecting" if self._session is None else self._session.state

    @property
    def node(self) -> control.Welcome | None:
        """What the node said of itself in the last handshake."""
        return None if self._session is None else self._session.welcome

    @property
    def node_name(self) -> str:
        """Of the node that it is or was connected to; LinkError before the first connection."""
        if self._session is None or self._session.welcome is None:
            raise LinkError("not connected yet: the node says in its welcome who it is")
        return self._session.welcome.name

    @property
    def issuer(self) -> bytes:
        """Who publishes the events of this client, as subscribers see it; LinkError before the first connection."""
        if self._session is None or self._session.welcome is None:
            raise LinkError("not connected yet: the node says in its welcome who publishes")
        return self._session.welcome.issuer

    @property
    def address(self) -> str:
        """Of the node; LinkError before the first connection."""
        if self._session is None or self._session.welcome is None:
            raise LinkError("not connected yet: the node says in its welcome where it is")
        return self._session.welcome.address

    @property
    def mode(self) -> int:
        """The mode that is in force (GS-052)."""
        return self._mode

    @property
    def finds(self) -> bool:
        """Whether the node finds variables by pattern."""
        return self.node is not None and "find" in self.node.capabilities

    @property
    def is_cell(self) -> bool:
        """Whether the node has names for its clients."""
        return self.node is not None and "cells" in self.node.capabilities

    @property
    def next_mode(self) -> int:
        """The mode that is coming; the present one if none is."""
        return self._next_mode

    @property
    def mode_changing(self) -> bool:
        """True between the announcement of a mode and its beginning."""
        return self._mode != self._next_mode

    @property
    def losses(self) -> tuple[int, int]:
        """(status values, events) that nodes dropped for this client because it was slow."""
        return self.core.losses

    @property
    def reconnections(self) -> int:
        return 0 if self._session is None else self._session.reconnections

    def counters(self) -> dict[str, int]:
        """Everything that was counted, by name."""
        subscriptions = self._subscribed.subscriptions
        watched = (watch.stream for watch in self._watched.watches)
        queues: set[Queue] = {*subscriptions, *watched, *self._patterns.streams}
        if self._floods.stream is not None:
            queues.add(self._floods.stream)
        return {
            **self.core.counters(),
            "violations_suppressed": self._watched.watchdog.suppressed,
            "older": sum(each.older for each in subscriptions),
            "dropped": sum(queue.dropped for queue in queues),
            "reconnections": self.reconnections,
            "durable_waiting": self.durable.waiting,
            "durable_sent_again": self.durable.sent_again,
            "replies_unexpected": self._replies.unexpected,
            **({f"datagrams_{name}": count for name, count in self._data.counters().items()} if self._data else {}),
        }

    def _hello(self) -> control.Hello:
        token = self._options.token() if callable(self._options.token) else self._options.token
        return control.Hello(
            role="client", name=self.name, session=self.session_number, token=token, capabilities=control.CAPABILITIES,
            heartbeat_ns=round(self._options.heartbeat_s * 1e9), conflate=self._options.conflate,
            flooded=self._options.flooded,
        )  # fmt: skip

    def session_up(self, welcome: control.Welcome, again: bool) -> None:
        """A connection was made: what this client had is asked for again, then it counts as connected."""
        self._enter(welcome.mode, welcome.mode)
        if not again:
            self._exchange.up.set()
            return
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    def session_down(self, error: Exception | None) -> None:
        """The connection is gone: requests fail, values are refused, events wait."""
        self._exchange.up.clear()
        if self._restoring is not None:
            self._restoring.cancel()
        self._close_datagrams()
        self._published.connection_lost()
        self._patterns.connection_lost()
        self._watched.connection_lost()
        self._floods.connection_lost()
        self._requests.fail(LinkError(f"the connection was lost before the answer: {error or 'end of stream'}"))
        self._call(self.on_disconnect, error)
        if self.state == "closed":
            self._end(LinkError(f"the connection was lost: {error or 'end of stream'}"))

    async def settled(self) -> bool:
        """The node has every event, and nothing is under way to this client that would be lost with the connection."""
        if not self._exchange.up.is_set() or self._requests.waiting or self._replies.waiting:
            return False
        try:
            await self.flush(self.timeout_s)
        except ChappeError:
            return False
        return not self._requests.waiting

    async def _restore(self) -> None:
        """Ask for everything again; events wait for the subscriptions, so that no answer to them is missed."""
        subscribed = [*self._subscribed.subscribe_again(), *self._cells.own_again()]
        again = [asyncio.ensure_future(self._published.register_again())]
        try:
            if subscribed:
                await asyncio.wait(subscribed, timeout=self.timeout_s)
            self.core.release_events()
            self._exchange.up.set()
            self._call(self.on_reconnect)
            again.append(asyncio.ensure_future(self._watched.watch_again()))
            self._patterns.find_again()
            for outcome in await asyncio.gather(self._open_datagrams(), *subscribed, return_exceptions=True):
                if isinstance(outcome, Exception) and not isinstance(outcome, LinkError):
                    self.report(outcome)
            await asyncio.gather(*again)
        finally:
            for task in again:
                task.cancel()

    async def close(self, *, flush: bool = True) -> None:
        """Flush and end. LinkError if events that were accepted are not confirmed by the node.

        DeniedError or RefusedError if it refused events, unless a `flush` has said so before.
        """
        if self._session is None or self.state == "closed":
            return
        unconfirmed: Exception | None = None
        refused: RefusedError | None = None
        if self.reporting is not None:
            self.reporting.close()
        if flush and self.core.queued:
            try:
                await self.flush(CLOSE_FLUSH_S)
            except RefusedError as error:
                refused = error
            except ChappeError as error:
                unconfirmed = error
        if self._restoring is not None:
            self._restoring.cancel()
        left = self.core.queued
        await asyncio.sleep(0)  # what was published in this tick leaves in it, by datagrams too
        self._close_datagrams()
        await self._floods.cancel()
        await self._session.close()
        self._end(None)
        self._requests.fail(LinkError("the client was closed"))
        if unconfirmed is not None and left:
            raise LinkError(f"closed with {left} bytes of events that the node did not confirm: {unconfirmed}")
        refused = refused or self._refusal()
        if refused is not None and flush:
            raise refused

    def _end(self, failure: Exception | None) -> None:
        for queue in (
            *self._subscribed.subscriptions,
            *(watch.stream for watch in self._watched.watches),
            *self._patterns.streams,
            self._floods.stream,
        ):
            if queue is not None:
                queue.end(failure)
        self._patterns.close()
        closed = failure or LinkError("the client was closed")
        self._watched.watchdog.close()
        if self.reporting is not None:
            self.reporting.end()
        for group in list(self.groups.values()):
            group.end()
        self._replies.close(closed)
        self._cells.close(closed)
        self.durable.close(closed)
        for waiter in (*self._flushes.values(), self._room):
            if waiter is not None and not waiter.done():
                waiter.set_exception(closed)

    async def _open_datagrams(self) -> None:
        """Ask the node for a data link, if this client is to use one."""
        if not self._options.datagrams:
            return
        assert self._session is not None
        self._data = DataLink(self.core, self._session, self._requests)
        await self._data.open(self.timeout_s)

    def _close_datagrams(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None

    async def flush(self, timeout_s: float | None = None) -> None:
        """The node has every event published so far (values too, unless the connection was lost meanwhile).

        DeniedError or RefusedError: it did not take some of them; the text names topics and the rules to add.
        """
        self._exchange.check_open()
        serial = self.core.flush()
        waiter = self._flushes[serial] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise TimeoutExpired(f"the node did not confirm within {timeout_s:g} s ({self.state})") from None
        finally:
            self._flushes.pop(serial, None)

    async def drain(self) -> None:
        """Wait until the queue of events is at most half full."""
        while not self.core.has_room:
            self._exchange.check_open()
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def publish_from_threads(self) -> None:
        """Let `publish` be called from other threads than the loop's."""
        assert self._session is not None
        self._session.schedule_from_threads()

    # --- calls of the core

    def _control(self, payload: bytes) -> None:
        message = control.decode(payload)
        if self._requests.resolve(message):
            return
        match message:
            case control.Failed():
                self.report(refusal(message))
            case control.PublishRefused():
                self._publish_refused(message)
            case control.Refused():
                self.report(ChappeError(f"the node ends the connection: {message.reason}"))
            case ModeState():
                self._enter(message.mode, message.next)
            case control.Watching():
                self._watched.regrant(message)
            case control.Found():
                self._patterns.found(message)
            case Withdrawn():
                self._watched.end_withdrawn(message.variable_id, message.reason)
            case control.Goodbye():
                log.info("the node drains", reason=message.reason)

    def _publish_refused(self, message: control.PublishRefused) -> None:
        """A topic was refused: whoever waits for events to it fails now, others at `flush` and `close`."""
        error = DeniedError(message.reason)
        if message.kind == "c":
            self._cells.refused(message.topic, error)
            return
        topic = public_topic(TopicName(message.topic if message.kind in "sn" else int(message.topic), message.kind))
        if topic not in self._denials and len(self._denials) >= DENIALS:
            del self._denials[next(iter(self._denials))]
        self._denials[topic] = error
        self.core.refuse(topic)
        self.report(error)
        self._excused += self._replies.refused(topic, error) + self.durable.refused(topic, error)

    def _refusal(self) -> RefusedError | None:
        """The error about events that the node did not take, once for each of them."""
        (by_rule, for_room), (known, roomless) = self.core.refused, self._refused
        by_rule -= self._excused
        self._refused = (max(by_rule, known), for_room)
        if by_rule > known:
            reasons = "\n".join(dict.fromkeys(str(error) for error in self._denials.values()))
            self._denials.clear()
            return DeniedError(f"{_events(by_rule - known)} refused: {reasons or 'see on_error'}")
        if for_room > roomless:
            return RefusedError(
                f"{_events(for_room - roomless)} refused: the node has no room for more topics; "
                "publish to fewer, or raise its limits",
                "limit",
            )
        return None

    def _enter(self, mode: int, following: int) -> None:
        """A mode is coming, or in force when both are the same (GS-115)."""
        if (mode, following) == (self._mode, self._next_mode):
            return
        self._mode, self._next_mode = mode, following
        if mode != following:
            self._watched.watchdog.announce()
        else:
            self._watched.settle(mode)
        for group in self.groups.values():
            group.settle(mode, following)
        self._call(self.on_mode, mode, following)

    def _progress(self) -> None:
        if self._data is not None:
            self._data.progress()
        if self._flushes:
            done = self.core.flushed
            for serial, waiter in self._flushes.items():
                if serial <= done and not waiter.done():
                    refusal = self._refusal()
                    if refusal is None:
                        waiter.set_result(None)
                    else:
                        waiter.set_exception(refusal)
        if self._room is not None and not self._room.done() and self.core.has_room:
            self._room.set_result(None)
        if self.core.losses != self._losses:
            self._losses = self.core.losses
            status, events = self._losses
            log.warning("the node dropped for this client", status=status, events=events)
            self._call(self.on_loss, status, events)

    def _queue_full(self, queue: Queue) -> None:
        if queue.blocking:
            if queue not in self._held:
                self._held.add(queue)
                assert self._session is not None
                self._session.pause_reading()
            return
        log.warning("a queue is full: the newest is dropped", queue=repr(queue), dropped=queue.dropped)
        self._call(self.on_full, queue)

    def subscription_has_room(self, queue: Queue) -> None:
        """A queue that had stopped the reading is half empty again."""
        self._held.discard(queue)
        if not self._held and self._session is not None:
            self._session.resume_reading()

    def report(self, error: Exception) -> None:
        log.warning("error", error=str(error), kind=type(error).__name__)
        self._call(self.on_error, error)

    def _call(self, callback: Callable[..., None] | None, *arguments: Any) -> None:
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback, *arguments)


def _events(count: int) -> str:
    return "1 event was" if count == 1 else f"{count} events were"
