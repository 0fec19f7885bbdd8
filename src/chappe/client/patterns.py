"""Variables that a client watches by pattern: the node names those that there are and those that come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial

from chappe.client._status import StatusStream, Watch
from chappe.client.exchange import Exchange
from chappe.client.owner import Owner
from chappe.client.requests import Requests, within
from chappe.client.watched import Watched, WatchOptions
from chappe.errors import ChappeError, LinkError, RefusedError, UnknownError
from chappe.wire import control

Name = tuple[str, str]  # publisher, variable


@dataclass(slots=True, eq=False)
class PatternWatch:
    """One pattern of one stream, and the watches that came of it."""

    pattern: str
    options: WatchOptions
    stream: StatusStream
    watches: dict[Name, Watch] = field(default_factory=dict)
    asking: set[Name] = field(default_factory=set)
    refused: dict[Name, str] = field(default_factory=dict)  # why, as it was reported


class Patterns:
    """Asks the node for names, watches each variable that it names, and asks again after a reconnection."""

    def __init__(self, owner: Owner, requests: Requests, exchange: Exchange, watched: Watched) -> None:
        self._owner = owner
        self._requests = requests
        self._exchange = exchange
        self._watched = watched
        self._watching: dict[str, list[PatternWatch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def streams(self) -> list[StatusStream]:
        """Those that stay open while nothing that they are for is published."""
        return [each.stream for same in self._watching.values() for each in same]

    async def watch(self, pattern: str, options: WatchOptions, stream: StatusStream) -> None:
        """Watch all variables that match, in that stream, and those that will."""
        if not self._owner.finds:
            raise RefusedError(
                "this node is of an earlier release and finds no variables by pattern: name them", "unsupported"
            )
        self._watched.open(stream)
        wanted = PatternWatch(pattern, options, stream)
        self._watching.setdefault(pattern, []).append(wanted)
        try:
            asked = self._requests.ask(lambda number: control.Find(id=number, pattern=pattern), control.Done)
            await within(asked, self._owner.timeout_s, f"watch {pattern}")
        except BaseException:
            self._forget(wanted)
            raise

    def found(self, notice: control.Found) -> None:
        """The node names variables that match."""
        for wanted in self._watching.get(notice.pattern, ()):
            names = [
                name for name in notice.variables
                if name not in wanted.asking and wanted.watches.get(name) not in self._watched.watches
            ]  # fmt: skip
            if names:
                wanted.asking.update(names)
                self._start(self._watch_found(wanted, names))

    async def unwatch(self, stream: StatusStream) -> None:
        """The patterns of a stream are over; its watches are ended by `Watched`."""
        over = [each for same in self._watching.values() for each in same if each.stream is stream]
        for wanted in over:
            self._forget(wanted)
        self._watched.shut(stream)
        if self._owner.state != "connected":
            return
        for pattern in {wanted.pattern for wanted in over} - self._watching.keys():
            await self._exchange.ask(partial(_unfind, pattern), control.Done, f"unwatch {pattern}")

    def connection_lost(self) -> None:
        """What is being watched is named again by the next node."""
        for task in self._tasks:
            task.cancel()
        for same in self._watching.values():
            for wanted in same:
                wanted.asking.clear()

    def find_again(self) -> None:
        """Ask for all names on a new connection."""
        for pattern in self._watching:
            self._start(self._find(pattern))

    def close(self) -> None:
        """The client ends."""
        self.connection_lost()
        self._watching.clear()

    async def _find(self, pattern: str) -> None:
        try:
            await self._exchange.ask(partial(_find, pattern), control.Done, f"watch {pattern}")
        except LinkError:
            pass  # the next connection asks again
        except ChappeError as error:
            self._owner.report(error)

    async def _watch_found(self, wanted: PatternWatch, names: Iterable[Name]) -> None:
        """Watch them, each for itself: one that is gone again, or refused, holds up no other."""
        watches = {}
        for name in names:
            known = wanted.watches.get(name)
            watches[name] = known or self._watched.make_watch(*name, wanted.options, wanted.stream)
        errors = await self._watched.admit_found(list(watches.values()), wanted.options)
        for (name, watch), error in zip(watches.items(), errors, strict=True):
            wanted.asking.discard(name)
            wanted.watches[name] = watch
            if error is None:
                wanted.refused.pop(name, None)
            elif isinstance(error, Exception) and not isinstance(error, LinkError | UnknownError):
                self._refused(wanted, name, error)

    def _refused(self, wanted: PatternWatch, name: Name, error: Exception) -> None:
        """Report it once: a name that comes again is asked for again."""
        if wanted.refused.get(name) != str(error):
            wanted.refused[name] = str(error)
            self._owner.report(error)

    def _forget(self, wanted: PatternWatch) -> None:
        same = self._watching[wanted.pattern]
        same.remove(wanted)
        if not same:
            del self._watching[wanted.pattern]

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _find(pattern: str, number: int) -> control.Find:
    return control.Find(id=number, pattern=pattern)


def _unfind(pattern: str, number: int) -> control.Unfind:
    return control.Unfind(id=number, pattern=pattern)
