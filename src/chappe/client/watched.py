"""Variables that a client watches, with their quality, kept over changes of mode and reconnections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from chappe.client._core import ClientCore
from chappe.client._status import StatusEvent, StatusStream, Watch
from chappe.client.merging import merge_requests
from chappe.client.owner import Owner
from chappe.client.quality import QosRequest, Quality, granted_by_mode
from chappe.client.requests import LATER_S, WINDOW, Requests, all_within, attempts, is_passing
from chappe.client.structs import ValueType, decoder_of
from chappe.client.watchdog import Supervision, Watchdog
from chappe.errors import LinkError, RefusedError, UnknownError, WithdrawnError
from chappe.wire import control
from chappe.wire.constants import MODES

NEVER = 1 << 62  # one of so many values: of a watch that does not live in the mode, beside others that do
AGAIN_WAIT_S = 60.0  # how long the node keeps a watch for a variable whose publisher has not come back yet


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What is the same for all variables that are watched by one call."""

    request: QosRequest
    kind: ValueType | None = None  # what the subscriber takes them for; None: anything
    callback: Callable[[StatusEvent], None] | None = None
    on_withdrawn: Callable[[Watch, WithdrawnError], None] | None = None
    supervision: Supervision = field(default_factory=Supervision)
    wait_s: float = 0.0


class Watched:
    """Watches, follows the mode, and watches again after a reconnection."""

    def __init__(self, owner: Owner, core: ClientCore, requests: Requests) -> None:
        self.watches: dict[Watch, None] = {}
        self.watchdog = Watchdog(owner.report)
        self._owner = owner
        self._core = core
        self._requests = requests
        self._named: dict[tuple[str, str], list[Watch]] = {}
        self._open: set[StatusStream] = set()  # that do not end with their last watch
        self._asked: dict[int, QosRequest] = {}  # by variable: what the node was asked for last

    async def watch(self, variables: Sequence[tuple[str, str]], options: WatchOptions, stream: StatusStream) -> None:
        """Watch the variables, all in one stream; nothing is watched if one of them is refused."""
        self._bind(stream)
        watches = [self.make_watch(publisher, variable, options, stream) for publisher, variable in variables]
        asked = (partial(self._ask_watch, watch, options.wait_s) for watch in watches)
        named = "/".join(variables[0]) + (f" and {len(watches) - 1} more" if len(watches) > 1 else "")
        try:
            await all_within(asked, self._owner.timeout_s + options.wait_s, f"watch {named}")
            for watch in watches:
                self.watchdog.follow(watch, options.supervision, self._owner.mode)
        except BaseException:
            for watch in watches:
                self.watchdog.forget(watch)
            await self._forget([watch for watch in watches if watch.active])
            raise
        for watch in watches:
            self._keep(watch)
        self._refine({watch.variable_id for watch in watches})

    def _bind(self, stream: StatusStream) -> None:
        stream.owner = self._owner
        stream.loop = asyncio.get_running_loop()
        stream.before_wait = self._core.write_now

    def open(self, stream: StatusStream) -> None:
        """A stream for watches that may come later: it goes on without any."""
        self._bind(stream)
        self._open.add(stream)

    def shut(self, stream: StatusStream) -> None:
        """No more watches come to a stream."""
        self._open.discard(stream)

    async def admit_found(self, watches: Sequence[Watch], options: WatchOptions) -> list[BaseException | None]:
        """Watch variables that the node has named, each for itself; the error of each, or None."""
        asked = (partial(self._ask_watch, watch) for watch in watches)
        errors = await attempts(asked, self._owner.timeout_s, "watch what was found")
        for watch, error in zip(watches, errors, strict=True):
            if error is None:
                _quality(watch).withdrawn = None
                self.watchdog.follow(watch, options.supervision, self._owner.mode)
                self._keep(watch)
        self._refine({watch.variable_id for watch, error in zip(watches, errors, strict=True) if error is None})
        return errors

    def make_watch(self, publisher: str, variable: str, options: WatchOptions, stream: StatusStream) -> Watch:
        """A watch that was not asked for yet."""
        finest = min(
            wanted.interval_ns for mode in range(MODES) if (wanted := options.request.in_mode(mode)) is not None
        )
        watch = Watch(publisher, variable, interval_ns=finest, callback=options.callback, stream=stream)
        kind = options.kind
        watch.owner = self._owner
        watch.quality = Quality(options.request, kind.name if kind else "", on_withdrawn=options.on_withdrawn)
        watch.decoder = kind.decode if kind else None
        return watch

    def _keep(self, watch: Watch) -> None:
        self.watches[watch] = None
        self._named.setdefault(_name(watch), []).append(watch)

    def _drop(self, watch: Watch) -> None:
        del self.watches[watch]
        same = self._named[_name(watch)]
        same.remove(watch)
        if not same:
            del self._named[_name(watch)]
        self.watchdog.forget(watch)

    def _ask_watch(self, watch: Watch, wait_s: float = 0.0) -> asyncio.Future[control.Watching]:
        """Ask for a watch, and in the same request for those of this client that share its subscription."""
        same = [each for each in self._named.get(_name(watch), ()) if each.active and each is not watch]
        together = [watch, *same]
        request = merge_requests([_quality(each).request for each in together], *(_rate(same[0]) if same else (0, 1)))
        return self._requests.ask(
            lambda number: _request(number, watch, request, wait_s),
            control.Watching,
            lambda answer: self._admit(together, request, answer),
        )

    def _admit(self, watches: Sequence[Watch], request: QosRequest, answer: control.Watching) -> None:
        """The node has granted a request that contains those of all these watches."""
        first = watches[0]
        wanted = _quality(first).kind
        if wanted and wanted != answer.type:
            if not self._core.watches.of(answer.variable_id):
                self._quietly(self._ask_unwatch(answer.variable_id))
            names = f"{first.publisher}/{first.variable}"
            raise RefusedError(f"{names} is of type {answer.type}, not {wanted} (type)")
        self._asked[answer.variable_id] = request
        granted = granted_by_mode(answer.grants, request.modes)
        self._core.watches.remove([watch for watch in watches if watch.active])
        for watch in watches:
            quality = _quality(watch)
            quality.settle(granted, answer, alone=len(watches) == 1)
            every = quality.every.get(self._owner.mode, NEVER)
            watch.admit(answer.variable_id, answer.type, answer.rate_num, answer.rate_den, every, answer.patterns)
            if any(each.redundancy > 1 for each in quality.granted.values()):
                watch.expect_copies()
            if watch.decoder is None:
                watch.decoder = decoder_of(answer.type)
            self.watchdog.retime(watch, self._owner.mode)
            if quality.on_admitted is not None:
                quality.on_admitted(watch)
        self._core.watches.add(watches)

    def _refine(self, numbers: Iterable[int]) -> None:
        """Ask again where the last request that was sent is not the one that contains all watches of a variable."""
        for number in set(numbers):
            same = [watch for watch in self._core.watches.of(number) if watch in self.watches]
            if not same:
                self._asked.pop(number, None)
            elif self._asked.get(number) != merge_requests([_quality(each).request for each in same], *_rate(same[0])):
                self._quietly(self._ask_watch(same[0]))

    def _quietly(self, asked: asyncio.Future[control.Watching] | asyncio.Future[control.Done]) -> None:
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def unwatch(self, watched: Watch | StatusStream) -> None:
        """Stop; iterators end after what is queued."""
        stream = watched if isinstance(watched, StatusStream) else watched.stream
        chosen = [watched] if isinstance(watched, Watch) else stream.watches
        leaving = [watch for watch in chosen if watch in self.watches]
        for watch in leaving:
            self._drop(watch)
        if isinstance(watched, StatusStream) or (len(stream.watches) == 1 and stream not in self._open):
            stream.end()
            self._owner.subscription_has_room(stream)
        await self._forget(leaving)

    async def _forget(self, watches: list[Watch]) -> None:
        freed = self._core.watches.remove(watches)
        for watch in watches:
            watch.active = False
        if self._owner.state == "connected":
            self._refine({watch.variable_id for watch in watches})
            asked = (partial(self._ask_unwatch, number) for number in freed)
            await all_within(asked, self._owner.timeout_s, "unwatch")

    def _ask_unwatch(self, number: int) -> asyncio.Future[control.Done]:
        return self._requests.ask(lambda request: control.Unwatch(id=request, variable_id=number), control.Done)

    # --- notices of the node

    def regrant(self, answer: control.Watching) -> None:
        """A publisher has changed its rate: watches of the variable go on as that allows (GS-073)."""
        watches = [watch for watch in self._core.watches.of(answer.variable_id) if watch in self.watches]
        request = self._asked.get(answer.variable_id)
        if watches and request is not None:
            self._admit(watches, request, answer)

    def end_withdrawn(self, number: int, reason: str) -> None:
        """A variable is published no more: its watches end, each with an error that says so (GS-053)."""
        ended = [watch for watch in self._core.watches.of(number) if watch in self.watches]
        self._core.watches.remove(ended)
        self._asked.pop(number, None)
        for watch in ended:
            error = WithdrawnError(f"{watch.publisher}/{watch.variable} was withdrawn: {reason}")
            quality = _quality(watch)
            quality.withdrawn = error
            watch.active = False
            self._drop(watch)
            expected = watch.stream in self._open  # by pattern: variables come and go
            if not expected and not any(each in self.watches for each in watch.stream.watches):
                watch.stream.end(error)
                self._owner.subscription_has_room(watch.stream)
            if quality.on_withdrawn is None:
                if not expected:
                    self._owner.report(error)
            else:
                asyncio.get_running_loop().call_soon(quality.on_withdrawn, watch, error)

    def settle(self, mode: int) -> None:
        """Another mode is in force: each watch gets the values of its interval there (GS-041)."""
        for watch in self.watches:
            every = _quality(watch).every.get(mode, NEVER)
            if every != watch.every and watch.active:
                self._core.watches.remove([watch])
                watch.retime(every)
                self._core.watches.add([watch])
        self.watchdog.settle(mode)

    # --- connections

    def connection_lost(self) -> None:
        """Nothing is watched until `watch_again`; what should come and does not is a violation."""
        for watch in self.watches:
            watch.active = False
        self._core.watches.clear()
        self._asked.clear()

    async def watch_again(self) -> None:
        """Watch everything on a new connection, for as long as it takes the publishers to come back."""
        missing, wait_s, waits = list(self.watches), 0.0, False
        while missing:
            # Those that the node keeps for a publisher to come must not hold up the others: all are asked at once.
            window = WINDOW if wait_s == 0 else 2 * len(missing)
            asked = (partial(self._ask_watch, watch, wait_s) for watch in missing)
            found = await attempts(asked, self._owner.timeout_s + wait_s, "watch again", window=window)
            left = [
                (watch, error) for watch, error in zip(missing, found, strict=True)
                if isinstance(error, Exception) and not isinstance(error, LinkError)
                and watch in self.watches and not watch.active
            ]  # fmt: skip
            passing = [error for _, error in left if is_passing(error)]
            for _, error in left:
                if not is_passing(error) and not isinstance(error, UnknownError):
                    self._owner.report(error)
            if passing and not waits:
                self._owner.report(passing[0])  # once for all of them: it goes on
            missing = [watch for watch, error in left if is_passing(error) or isinstance(error, UnknownError)]
            wait_s, waits = AGAIN_WAIT_S, waits or bool(passing)
            if passing:
                await asyncio.sleep(LATER_S)
        self._refine({watch.variable_id for watch in self.watches})


def _name(watch: Watch) -> tuple[str, str]:
    return watch.publisher, watch.variable


def _rate(watch: Watch) -> tuple[int, int]:
    return watch.rate_num, watch.rate_den


def _quality(watch: Watch) -> Quality:
    assert watch.quality is not None
    return watch.quality


def _request(number: int, watch: Watch, request: QosRequest, wait_s: float) -> control.Watch:
    """The request as a message; one that is only an interval is sent as such."""
    finest = min(wanted.interval_ns for mode in range(MODES) if (wanted := request.in_mode(mode)) is not None)
    return control.Watch(
        id=number, publisher=watch.publisher, variable=watch.variable, interval_ns=finest,
        priority=min(qos.priority for qos in request.qos), modes=request.modes, wait_ns=round(wait_s * 1e9),
        type=_quality(watch).kind, qos=() if request.plain else request.qos,
    )  # fmt: skip
