"""The blocking client for notebooks and scripts: the asyncio client on a loop in a thread of its own.

with chappe.sync.connect("tcp://127.0.0.1:7400") as client:
    client.publish("plant/alarm", b"valve 7")
    for message in client.subscribe("plant/#"):
        print(message.topic, message.body)
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Generic, TypeVar, Unpack, overload

import uvloop

from chappe.client import client as asynchronous
from chappe.client import connecting
from chappe.client._inbox import Message
from chappe.client._inbox import Subscription as AsyncSubscription
from chappe.client._status import StatusEvent, StatusStream
from chappe.client._status import Watch as AsyncWatch
from chappe.client._variables import Variable as AsyncVariable
from chappe.client._variables import VariableGroup
from chappe.client.arguments import (
    ConnectArguments,
    Extension,
    GroupArguments,
    MeasureArguments,
    MemberArguments,
    MonitorArguments,
    OpenLinkArguments,
    Properties,
    RegisterArguments,
    RegisterManyArguments,
    SubscribeArguments,
    Violated,
    WatchArguments,
    WatchManyArguments,
)
from chappe.client.derived import DerivedHolder
from chappe.client.groups import Group as AsyncGroup
from chappe.client.quality import Granted
from chappe.client.snapshots import Snapshot
from chappe.client.sync_cells import Cell
from chappe.client.topics import Advertisement, Topic
from chappe.errors import TimeoutExpired, WithdrawnError
from chappe.wire.control import Command
from chappe.wire.management import Function

T = TypeVar("T")
Entry = TypeVar("Entry")
Shown = TypeVar("Shown", bound=Callable[..., Any])


def _signature_of(origin: Callable[..., object], *, bound: bool = False) -> Callable[[Shown], Shown]:
    """Show the arguments of the asyncio client in `help`; type checkers know them by `Unpack`."""

    def shown(function: Shown) -> Shown:
        own = inspect.signature(function)
        arguments = list(inspect.signature(origin).parameters.values())
        if bound:
            arguments.insert(0, next(iter(own.parameters.values())))
        signature = own.replace(parameters=arguments)
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return shown


class _Loop:
    """A uvloop in a thread; `run` waits for a coroutine on it."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="chappe-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stay())

    async def _stay(self) -> None:
        self._end = asyncio.Event()
        await self._end.wait()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What the coroutine returns or raises; TimeoutExpired after `timeout_s`."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise TimeoutExpired(f"nothing came within {timeout_s:g} s") from None
        except BaseException:  # Ctrl-C in a notebook: the coroutine must not go on
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(lambda: self._end.set())
        self._thread.join()


class Entries(Generic[Entry]):
    """Blocking iteration over a subscription or watch, one by one, by lists or by RecordBatches."""

    def __init__(self, loop: _Loop, source: AsyncSubscription | AsyncWatch | StatusStream) -> None:
        self._loop = loop
        self._source = source

    @property
    def dropped(self) -> int:
        """How many found no room in the queue."""
        return self._source.dropped

    def __iter__(self) -> Iterator[Entry]:
        for batch in self.batches():
            yield from batch

    def next(self, timeout_s: float | None = None) -> Entry:
        """The next one; TimeoutExpired if none comes in time."""
        entry: Entry = self._loop.run(_next(self._source), timeout_s)
        return entry

    def batches(self, max: int = 65536) -> Iterator[list[Entry]]:
        """Lists of what has come."""
        return self._each(self._source.batches(max))

    def arrow(self, max_rows: int = 65536, max_wait: float = 0.0) -> Iterator[Any]:
        """RecordBatches of what has come."""
        return self._each(self._source.arrow(max_rows, max_wait))

    def take_nowait(self, limit: int = 65536) -> list[Entry]:
        """What is queued now; never waits."""
        entries: list[Any] = self._loop.run(_called(self._source.take_nowait, limit))
        return entries

    def _each(self, steps: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run(_next(steps))
            except StopAsyncIteration:
                return


class Subscription(Entries[Message]):
    """Blocking form of `chappe.Subscription`."""

    def unsubscribe(self) -> None:
        """Stop; what is queued can still be read."""
        assert isinstance(self._source, AsyncSubscription)
        self._loop.run(self._source.unsubscribe())


class Watch(Entries[StatusEvent]):
    """Blocking form of `chappe.Watch`: `value`, `created`, `received` and `latency_ns` are of the newest value."""

    def __init__(self, loop: _Loop, watch: AsyncWatch) -> None:
        super().__init__(loop, watch)
        self._watch = watch

    @property
    def value(self) -> Any:
        return self._watch.value

    @property
    def created(self) -> int | None:
        return self._watch.created

    @property
    def received(self) -> int | None:
        return self._watch.received

    @property
    def latency_ns(self) -> int | None:
        return self._watch.latency_ns

    @property
    def extrapolated(self) -> bool:
        """True if the newest value is an estimate."""
        return self._watch.extrapolated

    @property
    def derived(self) -> dict[str, Any]:
        """Derived values of the newest value, by name."""
        return self._watch.derived

    def hold(self, name: str, type: str | None = None) -> DerivedHolder:
        """A holder of one derived value."""
        return self._watch.hold(name, type)

    @property
    def granted(self) -> dict[int, Granted]:
        """What was granted, by mode."""
        return self._watch.granted

    @property
    def violations(self) -> dict[str, int]:
        """How often the quality was violated."""
        return dict(self._watch.violations)

    @property
    def withdrawn(self) -> WithdrawnError | None:
        """The error that ended this watch, or None."""
        return self._watch.withdrawn

    def monitor(self, on_violation: Violated | None = None, **arguments: Unpack[MonitorArguments]) -> None:
        """As `Client.monitor` of the asyncio client; the callback runs in the thread of the loop."""
        self._loop.run(_called(partial(self._watch.owner.monitor, self._watch, on_violation, **arguments)))

    def unwatch(self) -> None:
        """Stop."""
        self._loop.run(self._watch.unwatch())


class Group:
    """Blocking form of `chappe.Group`: sets of values from one instant."""

    def __init__(self, loop: _Loop, group: AsyncGroup) -> None:
        self._loop = loop
        self._group = group
        self.name = group.name

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        """(publisher, variable) of each."""
        return self._group.members

    @_signature_of(AsyncGroup.add)
    def add(self, publisher: str, variable: str, **arguments: Unpack[MemberArguments]) -> None:
        """A variable more, from the next set on."""
        self._loop.run(self._group.add(publisher, variable, **arguments))

    def remove(self, publisher: str, variable: str) -> None:
        """A variable less."""
        self._loop.run(self._group.remove(publisher, variable))

    @overload
    def latest(self) -> Snapshot | None: ...
    @overload
    def latest(self, count: int) -> list[Snapshot]: ...
    def latest(self, count: int | None = None) -> Snapshot | list[Snapshot] | None:
        """The newest complete set, or with a number the newest so many, oldest first."""
        if count is None:
            return self._loop.run(_called(self._group.latest))
        return self._loop.run(_called(self._group.latest, count))

    def __iter__(self) -> Iterator[Snapshot]:
        steps = aiter(self._group)
        while True:
            try:
                yield self._loop.run(_next(steps))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """Remove all members; iterators end."""
        self._loop.run(self._group.close())


class Stream(Entries[StatusEvent]):
    """Blocking form of `chappe.StatusStream`."""

    def __init__(self, loop: _Loop, stream: StatusStream) -> None:
        super().__init__(loop, stream)
        self.watches = stream.watches

    def unwatch(self) -> None:
        """Stop."""
        assert isinstance(self._source, StatusStream)
        self._loop.run(self._source.unwatch())


class Client:
    """Blocking form of `chappe.Client`; the same names, iterators instead of async iterators."""

    @_signature_of(connecting.connect, bound=True)
    def __init__(self, url: str | Sequence[str] | None = None, **arguments: Unpack[ConnectArguments]) -> None:
        self._loop = _Loop()
        try:
            self._client = self._loop.run(_connected(url, arguments))
        except BaseException:
            self._loop.stop()
            raise
        self._client.publish_from_threads()
        self._client.core.on_durable = self._publish_durable
        self.publish = self._client.publish
        self.publish_many = self._client.publish_many
        self.counters = self._client.counters

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(flush=error is None)

    @property
    def state(self) -> str:
        return self._client.state

    @property
    def losses(self) -> tuple[int, int]:
        return self._client.losses

    @property
    def mode(self) -> int:
        """The mode that is in force."""
        return self._client.mode

    @property
    def next_mode(self) -> int:
        """The mode that is coming; the present one if none is."""
        return self._client.next_mode

    @property
    def mode_changing(self) -> bool:
        """True between the announcement of a mode and its beginning."""
        return self._client.mode_changing

    def close(self, *, flush: bool = True) -> None:
        """Flush and end. LinkError if events that were accepted are not confirmed by the node."""
        try:
            self._loop.run(self._client.close(flush=flush))
        finally:
            self._loop.stop()

    @_signature_of(asynchronous.Client.publish_wait)
    def publish_wait(
        self, topic: Topic, body: bytes, priority: int = 3, *, durable: bool = False, **extension: Unpack[Extension]
    ) -> None:
        """`publish`, waiting for room while the queue is full; if durable=True, until an archive has stored it."""
        if durable:
            self._publish_durable(topic, body, priority, **extension)
        elif not self.publish(topic, body, priority, **extension):
            self._loop.run(self._client.publish_wait(topic, body, priority, **extension))

    def _publish_durable(self, topic: Topic, body: bytes, priority: int = 3, **extension: Unpack[Extension]) -> str:
        """`publish(..., durable=True)`: the name of the archive that has stored it; waits until one has."""

        async def published() -> str:
            return await self._client.durable.publish(topic, body, priority, **extension)

        return self._loop.run(published())

    def drain(self) -> None:
        """Wait until the queue of events is at most half full."""
        self._loop.run(self._client.drain())

    def flush(self, timeout_s: float | None = None) -> None:
        """The node has every event published so far."""
        self._loop.run(self._client.flush(timeout_s))

    @_signature_of(asynchronous.Client.subscribe)
    def subscribe(self, pattern: Topic, **arguments: Unpack[SubscribeArguments]) -> Subscription:
        """As `Client.subscribe` of the asyncio client."""
        return Subscription(self._loop, self._loop.run(self._client.subscribe(pattern, **arguments)))

    @_signature_of(asynchronous.Client.request)
    def request(
        self, topic: Topic, body: bytes, *, timeout_s: float | None = None, priority: int = 3,
        **properties: Unpack[Properties],
    ) -> Message:  # fmt: skip
        """Publish and wait for the first answer; TimeoutExpired if none comes."""
        return self._loop.run(self._client.request(topic, body, timeout_s=timeout_s, priority=priority, **properties))

    @_signature_of(asynchronous.Client.respond)
    def respond(self, message: Message, body: bytes, *, priority: int = 3, **extension: Unpack[Extension]) -> None:
        """Answer a request."""
        self._loop.run(self._client.respond(message, body, priority=priority, **extension))

    reply = respond

    @_signature_of(asynchronous.Client.register)
    def register(
        self, publisher: str, variable: str, *, rate: float | Fraction | None = None,
        **arguments: Unpack[RegisterArguments],
    ) -> AsyncVariable:  # fmt: skip
        """A variable that this client publishes; its `publish` may be called from any thread."""
        return self._loop.run(self._client.register(publisher, variable, rate=rate, **arguments))

    @_signature_of(asynchronous.Client.register_many)
    def register_many(
        self, publisher: str, variables: Iterable[str], *, rate: float | Fraction | None = None,
        **arguments: Unpack[RegisterManyArguments],
    ) -> VariableGroup:  # fmt: skip
        """Variables of one type and rate that are published together."""
        return self._loop.run(self._client.register_many(publisher, variables, rate=rate, **arguments))

    def cell(self, *names: str) -> Cell:
        """Names that others send messages to, over many paths at once: `with client.cell("fr.paris") as cell`."""
        return Cell(self._loop, self._client.cell(*names))

    def advertise(self, pattern: Topic) -> Advertisement:
        """Advertise to the mesh that this client publishes to a topic, or to topics of a pattern."""
        return self._loop.run(self._client.advertise(pattern))

    def publications(self, pattern: str = "") -> list[dict[str, Any]]:
        """What is advertised in the mesh; all, or of a pattern."""
        return self._loop.run(self._client.publications(pattern))

    @_signature_of(asynchronous.Client.open_link)
    def open_link(self, peer: str, **arguments: Unpack[OpenLinkArguments]) -> dict[str, Any]:
        """As `Client.open_link` of the asyncio client."""
        return self._loop.run(self._client.open_link(peer, **arguments))

    @_signature_of(asynchronous.Client.measure)
    def measure(self, link: str = "", **arguments: Unpack[MeasureArguments]) -> list[dict[str, Any]]:
        """As `Client.measure` of the asyncio client."""
        return self._loop.run(self._client.measure(link, **arguments))

    def withdraw(self, published: AsyncVariable | Advertisement) -> None:
        """Stop publishing a variable, or take back an advertisement."""
        self._loop.run(self._client.withdraw(published))

    @_signature_of(asynchronous.Client.watch)
    def watch(self, publisher: str, variable: str, **arguments: Unpack[WatchArguments]) -> Watch:
        """As `Client.watch` of the asyncio client; a `callback` runs in the thread of the loop."""
        return Watch(self._loop, self._loop.run(self._client.watch(publisher, variable, **arguments)))

    @_signature_of(asynchronous.Client.watch_many)
    def watch_many(
        self, variables: str | Sequence[tuple[str, str] | str], **arguments: Unpack[WatchManyArguments]
    ) -> Stream:
        """One stream of many variables, named or by pattern."""
        return Stream(self._loop, self._loop.run(self._client.watch_many(variables, **arguments)))

    @_signature_of(asynchronous.Client.group)
    def group(self, name: str, **arguments: Unpack[GroupArguments]) -> Group:
        """A group of variables that are read together; add members to it."""
        return Group(self._loop, self._loop.run(self._client.group(name, **arguments)))

    def condense(self, function: Function) -> int:
        """Have a condensation function run in the network; the number of the variable that it publishes."""
        return self._loop.run(self._client.condense(function))

    def uncondense(self, publisher: str, variable: str) -> None:
        """Remove a function that this client created."""
        self._loop.run(self._client.uncondense(publisher, variable))

    def flooded(self, *, max_queue: int = 65536) -> Stream:
        """The values of variables that nobody here watches; needs `flooded=True`."""

        async def opened() -> StatusStream:
            return self._client.flooded(max_queue=max_queue)

        return Stream(self._loop, self._loop.run(opened()))

    def list(self, what: str, limit: int = 1000) -> list[dict[str, Any]]:
        """Rows of what exists: variables, topics, publishers, types, links, clients, counters."""
        return self._loop.run(self._client.list(what, limit))

    def command(self, command: Command) -> None:
        """Send a table command and wait until the node has carried it out."""
        self._loop.run(self._client.command(command))


@_signature_of(connecting.connect)
def connect(url: str | Sequence[str] | None = None, **arguments: Unpack[ConnectArguments]) -> Client:
    """A connected client; the arguments are those of `chappe.connect`."""
    return Client(url, **arguments)


async def _connected(url: str | Sequence[str] | None, arguments: ConnectArguments) -> asynchronous.Client:
    return await connecting.connect(url, **arguments)


async def _next(steps: Any) -> Any:
    return await anext(steps)


async def _called(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)
