"""Variables that an archive takes: found by their names, watched with the least priority, in Arrow batches.

What the network does not grant is logged and left out, and asked for again later; what somebody else lacks is given
back: an archive insists on nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import structlog

from chappe.archive.config import Archive, Variables
from chappe.archive.rows import status_rows, struct_content, value_rows
from chappe.archive.sink import Sink
from chappe.client._status import StatusStream, Watch
from chappe.client.client import Client
from chappe.client.quality import Qos
from chappe.errors import ChappeError, LinkError, TimeoutExpired, UnknownError

log = structlog.get_logger(__name__)
LISTED = 1_000_000  # variables that are looked at
TOGETHER = 4096  # variables of one stream
AGAIN_S = 60.0  # after a refusal
ROW_BYTES = 120  # of a value in memory, about
BACKGROUND = 6  # the least priority
COLUMNS = ("float", "int", "bool")  # types whose values come as columns
Variable = tuple[str, str]


class Watching:
    """Looks for the variables of a configuration and puts their values into a sink."""

    def __init__(self, of: Archive, sink: Sink, client: Client) -> None:
        self._of = of
        self._sink = sink
        self._client = client
        self._node = client.node_name
        self.brokers: list[Client] = []  # clients of brokers, which know what is published elsewhere
        self._taken: set[Variable] = set()
        self._later: dict[Variable, float] = {}  # not to be asked for before this time
        self._streams: list[StatusStream] = []
        self._flood: StatusStream | None = None
        self._rest: list[StatusStream] = []  # streams that were read when `run` ended
        self._dropped = 0  # of streams that are left
        self.gave_way = 0  # how often
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def dropped(self) -> int:
        """Values that found no room in the queues of this client."""
        return self._dropped + sum(int(stream.dropped) for stream in self._streams)

    @property
    def queued(self) -> int:
        """Values that were received and not read yet."""
        return sum(len(stream) for stream in self._streams)

    def give_way(self) -> None:
        """Somebody was refused because a channel or router is full: what is watched here is left for a while."""
        left, self._streams = self._streams, [each for each in self._streams if each is self._flood]
        left = [each for each in left if each is not self._flood]
        if not left:
            return
        log.warning("a subscription was refused: the archive gives way", variables=len(self._taken), seconds=AGAIN_S)
        self.gave_way += 1
        again = asyncio.get_running_loop().time() + AGAIN_S
        self._later.update(dict.fromkeys(self._taken, again))
        self._taken.clear()
        self._dropped += sum(stream.dropped for stream in left)
        task = asyncio.ensure_future(self._unwatch(left))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unwatch(self, streams: Sequence[StatusStream]) -> None:
        for stream in streams:
            with contextlib.suppress(ChappeError):  # a lost connection has left them, too
                await self._client.unwatch(stream)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            if self._of.flooded:
                self._flood = self._client.flooded(max_queue=self._of.queue)
                self._read(self._flood)
            while self._of.variables:
                try:
                    await self._discover()
                except (LinkError, TimeoutExpired) as error:
                    log.warning("variables cannot be listed", reason=str(error))
                await asyncio.sleep(self._of.discover_s)
            await asyncio.Event().wait()
        finally:
            self._rest = list(self._streams)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def take_rest(self) -> None:
        """What has come and was not read before `run` ended."""
        for stream in self._rest:
            stream.end()
        for stream in self._rest:
            with contextlib.suppress(ChappeError):  # it ended with its connection
                await (self._columns(stream) if self._columnar(stream) else self._values(stream))

    def leave_rest(self) -> None:
        """Count what `take_rest` had no time for."""
        self._dropped += sum(len(stream) for stream in self._rest)
        self._rest = []

    async def _discover(self) -> None:
        rows = await self._client.list("variables", LISTED)
        for broker in self.brokers:
            rows += await _list_publications(broker)
        known = {(row["publisher"], row["variable"]): row["type"] for row in rows}
        now = asyncio.get_running_loop().time()
        wanted: dict[tuple[float | None, str], list[Variable]] = {}
        for variable, chosen in match_variables(self._of.variables, known):
            if variable not in self._taken and self._later.get(variable, 0.0) <= now:
                wanted.setdefault((chosen.interval_s, known.get(variable, "")), []).append(variable)
        for (interval_s, kind), variables in wanted.items():
            for start in range(0, len(variables), TOGETHER):
                await self._watch(variables[start : start + TOGETHER], interval_s, kind)

    async def _watch(self, variables: Sequence[Variable], interval_s: float | None, kind: str) -> None:
        try:
            stream = await self._client.watch_many(
                variables, qos=Qos(interval=interval_s, priority=BACKGROUND), modes=self._of.modes,
                max_queue=self._of.queue, on_full="drop",
            )  # fmt: skip
        except (LinkError, TimeoutExpired):
            raise
        except ChappeError as error:
            if len(variables) > 1:  # one of them is refused: the others need not suffer
                half = len(variables) // 2
                await self._watch(variables[:half], interval_s, kind)
                await self._watch(variables[half:], interval_s, kind)
                return
            self._later[variables[0]] = asyncio.get_running_loop().time() + AGAIN_S
            if not isinstance(error, UnknownError):
                name = "/".join(variables[0])
                log.warning("a variable is not archived, the network refuses it", variable=name, reason=str(error))
            return
        self._taken.update(variables)
        for watch in stream.watches:
            assert watch.quality is not None
            watch.quality.on_withdrawn = self._forget_withdrawn
            if watch.type.startswith("struct:"):
                watch.decoder = struct_content
        self._read(stream)

    def _forget_withdrawn(self, watch: Watch, error: Exception) -> None:
        self._taken.discard((watch.publisher, watch.variable))

    def _columnar(self, stream: StatusStream) -> bool:
        """Whether its values are all of one type that comes as a column."""
        kinds = {watch.type for watch in stream.watches}
        return stream is not self._flood and len(kinds) == 1 and kinds <= set(COLUMNS)

    def _read(self, stream: StatusStream) -> None:
        self._streams.append(stream)
        task = asyncio.ensure_future(self._columns(stream) if self._columnar(stream) else self._values(stream))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, stream))

    def _ended(self, stream: StatusStream, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if stream in self._streams:
            self._streams.remove(stream)
            self._dropped += stream.dropped
        if not task.cancelled() and task.exception() is not None:
            log.info("values of some variables end", reason=str(task.exception()))

    async def _columns(self, stream: StatusStream) -> None:
        async for batch in stream.arrow(65_536, self._of.commit_ms / 1e3):
            make = partial(status_rows, batch, self._node, self._client.mode)
            self._sink.put("status", batch.num_rows, batch.num_rows * ROW_BYTES, make)
            await self._sink.room()

    async def _values(self, stream: StatusStream) -> None:
        async for events in stream.batches(65_536):
            make = partial(value_rows, events, self._node, self._client.mode)
            self._sink.put("status", len(events), len(events) * ROW_BYTES, make)
            await self._sink.room()


async def _list_publications(broker: Client) -> list[dict[str, Any]]:
    """What is published in the cloud of a broker; nothing if it does not say, as one that does not lead."""
    try:
        rows: list[dict[str, Any]] = await broker.list("publications", LISTED)
    except ChappeError:
        return []
    return rows


def match_variables(wanted: Iterable[Variables], known: Iterable[Variable]) -> list[tuple[Variable, Variables]]:
    """Each variable that an entry names, once, with the first such entry; one named in full need not be known."""
    found: dict[Variable, Variables] = {}
    for entry in wanted:
        if not any(sign in entry.name for sign in "*?["):
            publisher, _, variable = entry.name.partition("/")
            found.setdefault((publisher, variable), entry)
            continue
        for known_one in known:
            if fnmatchcase("/".join(known_one), entry.name):
                found.setdefault(known_one, entry)
    return list(found.items())
