"""The asyncio client: publish, watch, subscribe, request and reply, over one connection made again when lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal

import msgspec
import structlog

from chappe.client._core import ClientCore
from chappe.client._inbox import Message, Subscription
from chappe.client._status import StatusEvent, StatusStream, Watch
from chappe.client._variables import Variable, VariableGroup
from chappe.client.datagram import DataLink
from chappe.client.floods import Floods
from chappe.client.replies import Replies
from chappe.client.requests import Answer, Requests, refusal, within
from chappe.client.session import Route, Session, State
from chappe.client.topics import Topic
from chappe.client.values import Values
from chappe.errors import ChappeError, LinkError, TimeoutExpired
from chappe.wire import control

log = structlog.get_logger("chappe.client")
CAPABILITIES = ("credit", "loss", "datagram")
CLOSE_FLUSH_S = 5.0
Queue = Subscription | StatusStream


class Client:
    """One client of a node; made by `chappe.connect`.

    Callbacks that may be set: `on_disconnect(error)`, `on_reconnect()`, `on_loss(status, events)` when the node dropped
    for this client, `on_full(queue)` when a local queue dropped for the first time, `on_error(error)` for what no call
    can raise: a denied topic, a variable that could not be registered again, an exception in a callback.
    """

    def __init__(
        self,
        route: Route,
        *,
        name: str,
        token: str | Callable[[], str] | None,
        queue_bytes: int,
        status_bytes: int,
        conflate: bool,
        flooded: bool,
        datagrams: bool,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.session_id = secrets.token_bytes(16)
        self.timeout_s = timeout_s
        self.on_disconnect: Callable[[Exception | None], None] | None = None
        self.on_reconnect: Callable[[], None] | None = None
        self.on_loss: Callable[[int, int], None] | None = None
        self.on_full: Callable[[Queue], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.core = ClientCore(queue_bytes=queue_bytes, status_bytes=status_bytes)
        self.publish = self.core.publish  # the compiled methods themselves: nothing in between
        self.publish_many = self.core.publish_many
        self._route = route
        self._token = token
        self._conflate = conflate
        self._flooded = flooded
        self._datagrams = datagrams
        self._data: DataLink | None = None
        self._floods = Floods(self.core, self.list)
        self._session: Session | None = None
        self._requests = Requests(self.core.send_control)
        self._replies = Replies(self)
        self._values = Values(self, self.core, self._requests)
        self._subscriptions: list[Subscription] = []
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._up = asyncio.Event()
        self._restoring: asyncio.Task[None] | None = None
        self._held: set[Queue] = set()
        self._losses = (0, 0)

    # --- connection

    async def start(self) -> Client:
        """Connect; LinkError, RefusedError, VersionError or TimeoutExpired say why it could not be."""
        self.core.on_control = self._control
        self.core.on_progress = self._progress
        self.core.on_full = self._queue_full
        self.core.on_failure = self._report
        self._session = Session(self.core, self._route, self._hello, self)
        try:
            await self._session.start()
            await self._open_datagrams()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aenter__(self) -> Client:
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
    def losses(self) -> tuple[int, int]:
        """(status values, events) that nodes dropped for this client because it was slow."""
        return self.core.losses

    @property
    def reconnections(self) -> int:
        return 0 if self._session is None else self._session.reconnections

    def counters(self) -> dict[str, int]:
        """Everything that was counted, by name."""
        queues: set[Queue] = {*self._subscriptions, *(watch.stream for watch in self._values.watches)}
        if self._floods.stream is not None:
            queues.add(self._floods.stream)
        return {
            **self.core.counters(),
            "dropped": sum(queue.dropped for queue in queues),
            "reconnections": self.reconnections,
            **({f"datagrams_{name}": count for name, count in self._data.counters().items()} if self._data else {}),
        }

    def _hello(self) -> control.Hello:
        token = self._token() if callable(self._token) else self._token
        return control.Hello(
            role="client", name=self.name, session=self.session_id, token=token, capabilities=CAPABILITIES,
            heartbeat_ns=round(self._route.heartbeat_s * 1e9), conflate=self._conflate, flooded=self._flooded,
        )  # fmt: skip

    def session_up(self, welcome: control.Welcome, again: bool) -> None:
        """A connection was made: what this client had is asked for again, then it counts as connected."""
        if not again:
            self._up.set()
            return
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    def session_down(self, error: Exception | None) -> None:
        """The connection is gone: requests fail, values are refused, events wait."""
        self._up.clear()
        if self._restoring is not None:
            self._restoring.cancel()
        self._close_datagrams()
        self._values.lost()
        self._floods.lost()
        self._requests.fail(LinkError(f"the connection was lost before the answer: {error or 'end of stream'}"))
        self._call(self.on_disconnect, error)
        if self.state == "closed":
            self._end(LinkError(f"the connection was lost: {error or 'end of stream'}"))

    async def _restore(self) -> None:
        """Ask for everything again; events wait for the subscriptions, so that no answer to them is missed."""
        subscribed: list[asyncio.Future[Any]] = [self._subscribe(each) for each in self._subscriptions]
        registering = asyncio.ensure_future(self._values.register_again())
        try:
            if subscribed:
                await asyncio.wait(subscribed, timeout=self.timeout_s)
            self.core.release_events()
            self._up.set()
            self._call(self.on_reconnect)
            outcomes = [
                *await asyncio.gather(
                    self._open_datagrams(), self._values.watch_again(), *subscribed, return_exceptions=True
                ),
                *await registering,
            ]
        finally:
            registering.cancel()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, LinkError):
                self._report(outcome)

    async def close(self, *, flush: bool = True) -> None:
        """Flush and end. LinkError if events that were accepted are not confirmed by the node."""
        if self._session is None or self.state == "closed":
            return
        unconfirmed: Exception | None = None
        if flush and self.core.queued:
            try:
                await self.flush(CLOSE_FLUSH_S)
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

    def _end(self, failure: Exception | None) -> None:
        for queue in (*self._subscriptions, *(watch.stream for watch in self._values.watches), self._floods.stream):
            if queue is not None:
                queue.end(failure)
        closed = failure or LinkError("the client was closed")
        self._replies.close(closed)
        for waiter in (*self._flushes.values(), self._room):
            if waiter is not None and not waiter.done():
                waiter.set_exception(closed)

    async def _open_datagrams(self) -> None:
        """Ask the node for a data link, if this client is to use one."""
        if not self._datagrams:
            return
        assert self._session is not None
        self._data = DataLink(self.core, self._session, self._requests)
        await self._data.open(self.timeout_s)

    def _close_datagrams(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None

    # --- events

    def publish_from_threads(self) -> None:
        """Let `publish` be called from other threads than the loop's."""
        assert self._session is not None
        self._session.schedule_from_threads()

    async def publish_wait(self, topic: Topic, body: bytes, priority: int = 3, **extension: Any) -> None:
        """`publish`, waiting for room while the queue is full."""
        while not self.core.publish(topic, body, priority, **extension):
            await self.drain()

    async def drain(self) -> None:
        """Wait until the queue of events is at most half full."""
        while not self.core.has_room:
            self._check_open()
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    async def flush(self, timeout_s: float | None = None) -> None:
        """The node has every event published so far (values too, unless the connection was lost meanwhile)."""
        self._check_open()
        serial = self.core.flush()
        waiter = self._flushes[serial] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise TimeoutExpired(f"the node did not confirm within {timeout_s:g} s ({self.state})") from None
        finally:
            self._flushes.pop(serial, None)

    async def subscribe(
        self,
        pattern: Topic,
        *,
        group: str = "",
        backpressure: bool = False,
        max_queue: int = 65536,
        max_bytes: int = 64 << 20,
        on_full: Literal["drop", "block"] | None = None,
    ) -> Subscription:
        """Events of a topic pattern (`+` one level, `#` the rest); of a `group` each event goes to one member.

        A full queue drops the newest and counts; `on_full="block"` stops reading from the node instead, and
        `backpressure` also makes publishers at that node wait.
        """
        await self._connected()
        subscription = Subscription(
            pattern, group=group, backpressure=backpressure, max_queue=max_queue, max_bytes=max_bytes, on_full=on_full
        )
        subscription.owner = self
        subscription.loop = asyncio.get_running_loop()
        subscription.before_wait = self.core.write_now
        self.core.add_subscription(subscription)
        try:
            await within(self._subscribe(subscription), self.timeout_s, f"subscribe {pattern!r}")
        except BaseException:
            self.core.remove_subscription(subscription)
            raise
        self._subscriptions.append(subscription)
        return subscription

    def _subscribe(self, subscription: Subscription) -> asyncio.Future[control.Done]:
        return self._requests.ask(
            lambda request: control.Subscribe(
                id=request, pattern=subscription.pattern, kind=subscription.kind, group=subscription.group,
                backpressure=subscription.backpressure,
            ),
            control.Done,
        )  # fmt: skip

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Stop; its iterators end after what is queued."""
        if subscription not in self._subscriptions:
            return
        self._subscriptions.remove(subscription)
        last = self.core.remove_subscription(subscription)
        subscription.end()
        self.subscription_has_room(subscription)
        if last and self.state == "connected":
            await self._ask(
                lambda request: control.Unsubscribe(
                    id=request, pattern=subscription.pattern, kind=subscription.kind, group=subscription.group
                ),
                control.Done,
                f"unsubscribe {subscription.pattern!r}",
            )

    async def request(
        self, topic: Topic, body: bytes, *, timeout_s: float | None = None, timeout: float | None = None, **options: Any
    ) -> Message:
        """Publish and wait for the first answer; TimeoutExpired if none comes."""
        return await self._replies.request(topic, body, timeout_s or timeout or self.timeout_s, options)

    async def respond(self, message: Message, body: bytes, **options: Any) -> None:
        """Answer a request."""
        if message.reply is None:
            raise ValueError(f"the message of {message.topic!r} expects no answer: it has no reply topic")
        await self.publish_wait(message.reply, body, correlation=message.correlation, **options)

    reply = respond

    # --- status

    async def register(
        self,
        publisher: str,
        variable: str,
        *,
        rate: float | Fraction | None = None,
        type: str = "float",
        priority: int = 3,
        options: int = 0,
    ) -> Variable:
        """A variable that this client publishes at `rate` a second; no rate: when something happens (an alert)."""
        await self._connected()
        return (await self._values.register(publisher, [variable], rate, type, priority, options))[0]

    async def register_many(
        self, publisher: str, variables: Iterable[str], *, rate: float | Fraction | None = None, type: str = "float",
        priority: int = 3,
    ) -> VariableGroup:  # fmt: skip
        """Variables of one type and rate that are published together."""
        await self._connected()
        return VariableGroup(await self._values.register(publisher, variables, rate, type, priority, 0))

    async def withdraw(self, variable: Variable) -> None:
        """Stop publishing a variable."""
        await self._values.withdraw(variable)

    async def watch(
        self,
        publisher: str,
        variable: str,
        *,
        interval: float | Fraction | None = None,
        callback: Callable[[StatusEvent], None] | None = None,
        max_queue: int = 65536,
        on_full: str = "drop",
        wait_s: float = 0.0,
    ) -> Watch:
        """The values of a variable, one every `interval` seconds (None: all).

        `wait_s`: how long a variable that nobody publishes yet may take to appear.
        """
        await self._connected()
        stream = StatusStream(max_queue=max_queue, on_full=on_full)
        await self._values.watch([(publisher, variable)], interval, callback, stream, wait_s)
        return stream.watches[0]

    async def watch_many(
        self,
        variables: Sequence[tuple[str, str]],
        *,
        interval: float | Fraction | None = None,
        max_queue: int = 1 << 20,
        on_full: str = "drop",
        wait_s: float = 0.0,
    ) -> StatusStream:
        """One stream of many variables given as (publisher, variable); its `watches` hold the newest value of each."""
        if not variables:
            raise ValueError("watch_many needs at least one (publisher, variable)")
        await self._connected()
        stream = StatusStream(max_queue=max_queue, on_full=on_full)
        await self._values.watch(variables, interval, None, stream, wait_s)
        return stream

    def flooded(self, *, max_queue: int = 65536) -> StatusStream:
        """The values of variables that nobody here watches and that the mode of the network sends to everybody.

        Needs `connect(..., flooded=True)`. One stream a client; a name that the node does not list is `#number`.
        """
        self._check_open()
        if not self._flooded:
            raise ValueError("this client did not ask for flooded variables: connect with flooded=True")
        return self._floods.open(self, max_queue)

    async def unwatch(self, watched: Watch | StatusStream) -> None:
        """Stop; iterators end after what is queued."""
        if self._floods.stream is not None and watched is self._floods.stream:
            self._floods.close()
        await self._values.unwatch(watched)

    # --- the node

    async def list(self, what: str, limit: int = 1000, variable: str = "") -> list[dict[str, Any]]:
        """Rows of what exists: variables, topics, publishers, types, links, clients, counters.

        A broker has others, see docs/reference/brokers.md; `variable` selects its rows of one PUBLISHER/VARIABLE.
        """
        answer = await self._ask(
            lambda request: control.List(id=request, what=what, limit=limit, variable=variable),
            control.Listing,
            f"list {what}",
        )
        return [*answer.rows]

    async def operate(self, request: control.Request) -> control.Request:
        """Ask a broker what operators ask (ChangeMode, SetFlood, AddRouter …; `id` is filled in); its answer."""
        return await self._ask(
            lambda number: msgspec.structs.replace(request, id=number), control.Request, type(request).__name__
        )

    async def command(self, command: control.Command) -> None:
        """Send a table command (SetupPath, SetMode …; `id` is filled in) and wait until it is carried out."""
        await self._ask(
            lambda request: msgspec.structs.replace(command, id=request), control.Done, type(command).__name__
        )

    async def _ask(self, make: Callable[[int], control.Request], kind: type[Answer], what: str) -> Answer:
        await self._connected()
        return await within(self._requests.ask(make, kind), self.timeout_s, what)

    async def _connected(self) -> None:
        self._check_open()
        if not self._up.is_set():
            try:
                async with asyncio.timeout(self.timeout_s):
                    await self._up.wait()
            except TimeoutError:
                raise LinkError(f"not connected for {self.timeout_s:g} s ({self.state})") from None

    def _check_open(self) -> None:
        if self.state == "closed":
            raise LinkError("the client is closed: connect again")

    # --- what the core tells

    def _control(self, payload: bytes) -> None:
        message = control.decode(payload)
        if self._requests.answered(message):
            return
        match message:
            case control.Failed():
                self._report(refusal(message))
            case control.Refused():
                self._report(ChappeError(f"the node ends the connection: {message.reason}"))
            case control.Goodbye():
                log.info("the node drains", reason=message.reason)

    def _progress(self) -> None:
        if self._data is not None:
            self._data.progress()
        if self._flushes:
            done = self.core.flushed
            for serial, waiter in self._flushes.items():
                if serial <= done and not waiter.done():
                    waiter.set_result(None)
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

    def _report(self, error: Exception) -> None:
        log.warning("error", error=str(error), kind=type(error).__name__)
        self._call(self.on_error, error)

    def _call(self, callback: Callable[..., None] | None, *arguments: Any) -> None:
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback, *arguments)
