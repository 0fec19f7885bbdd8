"""The asyncio client: publish, watch, subscribe, request and reply, over one connection made again when lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Unpack

from chappe.client._inbox import Message, Subscription
from chappe.client._status import StatusEvent, StatusStream, Watch
from chappe.client._variables import Variable, VariableGroup
from chappe.client.arguments import Extension, Properties, Violated
from chappe.client.cells import Cell
from chappe.client.connection import Connection
from chappe.client.derived import Derived
from chappe.client.extrapolation import Extrapolator
from chappe.client.groups import Group
from chappe.client.published import Publication
from chappe.client.quality import Qos, Seconds, qos_request
from chappe.client.snapshots import Snapshot
from chappe.client.structs import TypeName, value_type
from chappe.client.topics import Advertisement, Topic
from chappe.client.watchdog import Supervision
from chappe.client.watched import WatchOptions
from chappe.errors import UnconfirmedError, WithdrawnError
from chappe.wire import control
from chappe.wire.management import Function


class Client(Connection):
    """One client of a node; made by `chappe.connect`."""

    # --- events

    async def publish_wait(
        self, topic: Topic, body: bytes, priority: int = 3, *, durable: bool = False, **extension: Unpack[Extension]
    ) -> None:
        """`publish`, waiting for room while the queue is full; if durable=True, until an archive has stored it."""
        if durable:
            await self.core.publish(topic, body, priority, durable=True, **extension)
            return
        while not self.core.publish(topic, body, priority, **extension):
            await self.drain()

    async def subscribe(
        self,
        pattern: Topic,
        *,
        group: str = "",
        backpressure: bool = False,
        max_queue: int = 65536,
        max_bytes: int = 64 << 20,
        on_full: Literal["drop", "block"] | None = None,
        since: int | None = None,
    ) -> Subscription:
        """Events of a topic pattern (`+` one level, `#` the rest); of a `group` each event goes to one member.

        It takes in events made from now on, wherever they are published; since: from another time on, in ns since 1970
        (0: whatever comes). What is older by its stamp is counted in `older`; an event without a stamp is taken.

        A full queue drops the newest and counts; `on_full="block"` stops reading from the node instead, and
        `backpressure` also makes publishers at that node wait.
        """
        return await self._subscribed.subscribe(
            pattern, group=group, backpressure=backpressure, max_queue=max_queue, max_bytes=max_bytes, on_full=on_full,
            since=since,
        )  # fmt: skip

    async def open_inbox(
        self,
        *,
        max_queue: int = 65536,
        max_bytes: int = 64 << 20,
        on_full: Literal["drop", "block"] | None = None,
        moved: Callable[[], None] | None = None,
    ) -> Subscription:
        """A queue with an address of its own at the node: whoever is given `address` may send there, nobody else can.

        It is open until it is unsubscribed, over all reconnections. At another node it has another address, and what
        is sent to the old one is lost: then `moved` is called.
        """
        return await self._subscribed.open_inbox(max_queue=max_queue, max_bytes=max_bytes, on_full=on_full, moved=moved)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Stop; its iterators end after what is queued."""
        await self._subscribed.unsubscribe(subscription)

    async def advertise(self, pattern: Topic) -> Advertisement:
        """Advertise to the mesh that this client publishes to a topic, or to topics of a pattern (MR-133).

        Whoever may subscribe finds it by `publications`; `withdraw` takes it back, and so does the end of this client.
        """
        return await self._subscribed.advertise(pattern)

    async def publications(self, pattern: str = "") -> list[dict[str, Any]]:
        """What is advertised in the mesh, and the node or unit where it is published; all, or what meets a pattern."""
        return await self.list("publications", 100_000, of=pattern)

    async def request(
        self, topic: Topic, body: bytes, *, timeout_s: float | None = None, priority: int = 3,
        **properties: Unpack[Properties],
    ) -> Message:  # fmt: skip
        """Publish and wait for the first answer; TimeoutExpired if none comes.

        LinkError if the client had to move to another node meanwhile: the answer does not follow it there, and nobody
        knows whether the request was carried out.
        """
        return await self._replies.request(topic, body, timeout_s or self.timeout_s, priority, properties)

    async def respond(
        self, message: Message, body: bytes, *, priority: int = 3, **extension: Unpack[Extension]
    ) -> None:
        """Answer a request."""
        if message.reply is None:
            raise ValueError(f"the message of {message.topic!r} expects no answer: it has no reply topic")
        extension["correlation"] = message.correlation
        await self.publish_wait(message.reply, body, priority, **extension)

    reply = respond

    # --- status

    async def register(
        self,
        publisher: str,
        variable: str,
        *,
        rate: float | Fraction | None = None,
        slowest: Seconds | None = None,
        minimum: Seconds | None = None,
        type: TypeName = "float",
        length: int | None = None,
        priority: int = 3,
        options: int = 0,
        derived: Sequence[Derived] = (),
    ) -> Variable:
        """A variable that this client publishes at `rate` a second; no rate: when something happens (an alert).

        slowest: a promise of one value in so many seconds. minimum: of alerts, least seconds between two; `publish` is
        False for those that come sooner. type: float, int, bool, bytes or a msgspec.Struct class; of the last two
        `length` bounds the bytes. derived: values computed from each value and sent with it.
        """
        await self._exchange.connected()
        publication = Publication(
            rate=rate, slowest=slowest, minimum=minimum, type=type, length=length, priority=priority, options=options,
            derived=derived,
        )  # fmt: skip
        return (await self._published.register(publisher, [variable], publication))[0]

    async def register_many(
        self, publisher: str, variables: Iterable[str], *, rate: float | Fraction | None = None,
        slowest: Seconds | None = None, type: TypeName = "float", priority: int = 3,
    ) -> VariableGroup:  # fmt: skip
        """Variables of one type and rate that are published together."""
        await self._exchange.connected()
        publication = Publication(rate=rate, slowest=slowest, type=type, priority=priority)
        return VariableGroup(await self._published.register(publisher, variables, publication))

    async def withdraw(self, published: Variable | Advertisement) -> None:
        """Stop publishing a variable; or take back an advertisement, one that is taken back already is no error."""
        if isinstance(published, Advertisement):
            await self._subscribed.withdraw(published)
        else:
            await self._published.withdraw(published)

    async def watch(
        self,
        publisher: str,
        variable: str,
        *,
        interval: Seconds | None = None,
        qos: Qos | Mapping[int, Qos] | None = None,
        modes: Iterable[int] | None = None,
        type: TypeName | None = None,
        callback: Callable[[StatusEvent], None] | None = None,
        on_violation: Violated | None = None,
        slack: Seconds | None = None,
        extrapolate: Extrapolator | None = None,
        on_withdrawn: Callable[[Watch, WithdrawnError], None] | None = None,
        max_queue: int = 65536,
        on_full: str = "drop",
        wait_s: float = 0.0,
    ) -> Watch:
        """The values of a variable, one every `interval` seconds (None: all), or with the quality of `qos`.

        qos: for all modes, or by mode; QosError says what could be granted if it cannot. type: refused if the variable
        is of another. on_violation: called when a value is late or missing by more than `slack`. extrapolate: an
        estimate takes the place of a missing value instead. wait_s: how long a variable that nobody publishes yet may
        take to appear.
        """
        request = qos_request(qos, interval, modes)
        kind = None if type is None else value_type(type)
        supervision = Supervision.of(on_violation, slack, extrapolate)
        stream = StatusStream(max_queue=max_queue, on_full=on_full)
        await self._exchange.connected()
        options = WatchOptions(
            request=request,
            kind=kind,
            callback=callback,
            on_withdrawn=on_withdrawn,
            supervision=supervision,
            wait_s=wait_s,
        )
        await self._watched.watch([(publisher, variable)], options, stream)
        return stream.watches[0]

    async def watch_many(
        self,
        variables: str | Sequence[tuple[str, str] | str],
        *,
        interval: Seconds | None = None,
        qos: Qos | Mapping[int, Qos] | None = None,
        modes: Iterable[int] | None = None,
        type: TypeName | None = None,
        max_queue: int = 1 << 20,
        on_full: str = "drop",
        wait_s: float = 0.0,
    ) -> StatusStream:
        """One stream of many variables; its `watches` hold the newest value of each.

        Given as (publisher, variable), or as patterns over publisher/variable such as "scada/#": these take in what is
        published later, too, and the stream goes on while nothing that matches is published.
        """
        words = [variables] if isinstance(variables, str) else list(variables)
        if not words:
            raise ValueError("watch_many needs at least one (publisher, variable), or a pattern")
        options = WatchOptions(
            request=qos_request(qos, interval, modes), kind=None if type is None else value_type(type), wait_s=wait_s
        )
        stream = StatusStream(max_queue=max_queue, on_full=on_full)
        await self._exchange.connected()
        named = [word for word in words if not isinstance(word, str)]
        if named:
            await self._watched.watch(named, options, stream)
        try:
            for word in words:
                if isinstance(word, str):
                    await self._patterns.watch(word, options, stream)
        except BaseException:
            await self.unwatch(stream)
            raise
        return stream

    def monitor(
        self,
        watch: Watch,
        on_violation: Violated | None = None,
        *,
        slack: Seconds | None = None,
        extrapolate: Extrapolator | None = None,
    ) -> None:
        """Look after the quality of a watch from now on as said here; with nothing said, no more (GS-045)."""
        supervision = Supervision.of(on_violation, slack, extrapolate)
        self._watched.watchdog.follow(watch, supervision, self.mode)

    async def group(
        self,
        name: str,
        *,
        interval: Seconds | None = None,
        qos: Qos | Mapping[int, Qos] | None = None,
        modes: Iterable[int] | None = None,
        history: int = 8,
        callback: Callable[[Snapshot], None] | None = None,
        max_queue: int = 1024,
    ) -> Group:
        """A group of variables that are read together at one interval; add members to it.

        history: complete sets that are kept. callback: called with each. ValueError if there is one of that name.
        """
        await self._exchange.connected()
        if name in self.groups:
            raise ValueError(f"there is a group {name!r} already")
        request = qos_request(qos, interval, modes)
        group = Group(
            self._watched,
            name,
            request,
            mode=self.mode,
            next_mode=self.next_mode,
            reporter=self.reporting,
            report=self.report,
            on_close=lambda: self.groups.pop(name, None),
            history=history,
            max_queue=max_queue,
            callback=callback,
        )
        self.groups[name] = group
        return group

    def flooded(self, *, max_queue: int = 65536) -> StatusStream:
        """The values of variables that nobody here watches and that the mode of the network sends to everybody.

        Needs `connect(..., flooded=True)`. One stream a client; a name that the node does not list is `#number`.
        """
        self._exchange.check_open()
        if not self._options.flooded:
            raise ValueError("this client did not ask for flooded variables: connect with flooded=True")
        return self._floods.open(self, max_queue)

    async def unwatch(self, watched: Watch | StatusStream) -> None:
        """Stop; iterators end after what is queued."""
        if self._floods.stream is not None and watched is self._floods.stream:
            self._floods.close()
        if isinstance(watched, StatusStream):
            await self._patterns.unwatch(watched)
        await self._watched.unwatch(watched)

    # --- cells

    def cell(self, *names: str) -> Cell:
        """Names that others send messages to, over many paths at once: `async with client.cell("fr.paris") as cell`.

        Needs a node that is a cell, and the right to register `cell:NAME`.
        """
        return Cell(self._cells, names)

    # --- the node

    async def condense(self, function: Function) -> int:
        """Have a condensation function run in the network; the number of the variable that it publishes (GS-134)."""
        return await self._node.condense(function)

    async def uncondense(self, publisher: str, variable: str) -> None:
        """Remove a function that this client created (GS-136)."""
        await self._node.uncondense(publisher, variable)

    async def measure(
        self, link: str = "", *, every: float | None = None, usual: bool = False, far: bool = False
    ) -> list[dict[str, Any]]:
        """Have the node measure its link to another node or client (none named: all) now; what it found (MR-072).

        every: instead, measure it every so many seconds from now on, 0: not at all. usual: as often as the node likes.
        far: ask the other end for the same. Needs the right to control the node.
        """
        return await self._node.measure(link, every, usual, far)

    async def open_link(self, peer: str, *, kind: str = "", data: str = "", lifetime_s: float = 0.0) -> dict[str, Any]:
        """Have the node open another link to a node that it is connected to; its row of the listing `transports`.

        kind: of transport (ws, tls, udp …); or data: `control`, `status` or `bulk`, for which the best link that both
        have is taken (MR-048). udp carries values beside the stream, any other takes the place of the one in use. After
        lifetime_s (0: never) everything is as before. Needs the right to control the node.
        """
        return await self._node.open_link(peer, kind, data, lifetime_s)

    async def probed(self, every: float | None = None) -> None:
        """Be probed by the node every so many seconds at most, 0: not at all; None: as it likes (MR-072).

        It holds as long as the connection does. A node probes clients if its file says so ([measure] clients).
        """
        await self._node.set_pace(every)

    async def confirm_again(self, error: UnconfirmedError) -> str:
        """The archive that has an event which was published and not confirmed; subscribers do not get it again."""
        await self._exchange.connected()
        return await self.durable.again(error)

    async def command(self, command: control.Command) -> None:
        """Send a command of brokers (Setup, SetMode …; `id` is filled in) and wait until it is carried out."""
        await self._node.command(command)

    async def operate(self, request: control.Request) -> control.Answer:
        """Ask a broker what operators ask (ChangeMode, SetFlood, AddRouter …; `id` is filled in); its answer."""
        return await self._node.operate(request)

    async def check_right(self, action: str, address: str) -> None:
        """DeniedError, with the rule that is missing, unless this client may do that at an address or in a pattern."""
        await self._node.check_right(action, address)

    async def list(
        self, what: str, limit: int = 1000, variable: str = "", *, of: str = "", to: str = "", profile: str = ""
    ) -> list[dict[str, Any]]:
        """Rows of what exists: variables, topics, publishers, types, links, clients, counters.

        A broker has others, see docs/reference/brokers.md; `variable` selects its rows of one PUBLISHER/VARIABLE. A
        node of a mesh has measured, map, routes, members; `history` `of` a link; `route` `of` a node `to` another one.
        """
        return await self._node.list(
            control.List(id=0, what=what, limit=limit, variable=variable, of=of, to=to, profile=profile)
        )
