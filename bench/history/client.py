"""A client of a run, as a process: `python -m bench.history.client TASK.json`; it writes down all it does.

SIGUSR1: begin nothing new, wait for the answers to what was begun; it prints `done` then. SIGTERM: the end.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from bench.history.records import FAILED, OK, UNKNOWN, Event, Writer
from chappe.client._inbox import Message
from chappe.client._status import Watch
from chappe.client._variables import Variable
from chappe.client.client import Client
from chappe.client.connecting import Connecting, connect
from chappe.client.quality import Qos
from chappe.errors import ChappeError, LinkError, QueueFullError, RefusedError, TimeoutExpired
from chappe.wire.management import ChangeMode

PRIORITIES = (1, 3, 5)  # of plain events: three classes
DURABLE = 4  # priority of durable ones, which count on their own
RATE_HZ = 120.0  # plain events of a publisher
DURABLE_HZ = 20.0
FLUSH_EVERY = (5, 60)  # events
BURST, BURSTS = 300, 0.01  # events at once, and how often there is such a burst
FLUSH_S = 20.0
DURABLE_S = 60.0
VALUES_HZ = 20
QUALITIES = (Qos(interval=0.1), Qos(interval=0.1, redundancy=2, worst=Qos(redundancy=1)), Qos(interval=0.2))
CHANGE_S = (1.0, 4.0)  # between two requests of a watcher or operator
MODES = 4
ASK_S = 20.0


class Task(msgspec.Struct, frozen=True):
    """What a client is and does."""

    name: str
    does: str  # publish, subscribe, register, watch or operate
    url: str  # several with commas
    tls: tuple[str, str, str]  # ca, cert, key
    history: str
    seed: int
    topic: str = "history/{name}"
    variables: tuple[tuple[str, str], ...] = ()


def body_of(event: Event) -> bytes:
    return f"{event.publisher}:{event.priority}:{event.number}".encode()


def event_of(body: bytes) -> Event:
    """ValueError if it is none."""
    publisher, priority, number = body.decode().split(":")
    return Event(publisher, int(priority), int(number))


class Actor:
    """One client; `stopping` is set when it is to begin nothing new."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.write = Writer(Path(task.history))
        self.chance = random.Random(f"{task.seed}/{task.name}")
        self.stopping = asyncio.Event()
        self.ending = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self.stopping.set)
        loop.add_signal_handler(signal.SIGTERM, self.ending.set)
        if self.task.does == "operate":
            print("serving", flush=True)
            await self.operate()
            return
        try:
            async with self._connect(self.task.url) as client:
                self._follow(client)
                print("serving", flush=True)
                await getattr(self, self.task.does)(client)
        except LinkError as error:  # it ends with events that no node confirmed: the history says so, too
            self.write("closed", str(error))

    def _connect(self, url: str, wait_s: float = 60.0) -> Connecting:
        return connect(url, name=self.task.name, tls=self.task.tls, wait_s=wait_s, durable_s=DURABLE_S, timeout_s=ASK_S,
                       heartbeat_s=0.5, compare_s=5.0)  # fmt: skip

    def _follow(self, client: Client) -> None:
        """Write down when the client is connected, and where."""

        def up() -> None:
            assert client.node is not None
            self.write("up", client.node.name)

        def note(what: str, *values: object) -> None:
            self.write(what, *(str(value) for value in values))

        client.on_disconnect = partial(note, "down")
        client.on_reconnect = up
        client.on_loss = partial(note, "loss")
        client.on_error = partial(note, "error")
        if self.task.does != "subscribe":
            up()

    async def _end(self) -> None:
        """All answers are there."""
        self.write("done")
        print("done", flush=True)
        await self.ending.wait()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    # events

    async def publish(self, client: Client) -> None:
        """Events of three classes at a steady rate with flushes between them; durable ones beside them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish_plain(client))
            group.create_task(self._publish_durable(client))
        await self._end()

    async def _publish_plain(self, client: Client) -> None:
        numbers = dict.fromkeys(PRIORITIES, 0)
        flushes = burst = 0
        left = self.chance.randint(*FLUSH_EVERY)
        topic = self.task.topic.format(name=self.task.name)
        while not self.stopping.is_set():
            priority = self.chance.choice(PRIORITIES)
            number = numbers[priority]
            numbers[priority] += 1
            event = Event(self.task.name, priority, number)
            self.write("publish", priority, number)
            await client.publish_wait(topic, body_of(event), priority)
            left -= 1
            if left <= 0:
                flushes += 1
                await self._flush(client, flushes)
                left = self.chance.randint(*FLUSH_EVERY)
            burst -= 1
            if burst <= 0:
                burst = BURST if self.chance.random() < BURSTS else 0
                await self._pause(self.chance.expovariate(RATE_HZ))
        await self._flush(client, flushes + 1)

    async def _flush(self, client: Client, number: int) -> None:
        self.write("flush", number)
        try:
            await client.flush(FLUSH_S)
            self.write("flushed", number)
        except ChappeError as error:
            self.write("unflushed", number, str(error))

    async def _publish_durable(self, client: Client) -> None:
        number = 0
        waiting: set[asyncio.Future[str]] = set()
        topic = self.task.topic.format(name=self.task.name)
        while not self.stopping.is_set():
            event = Event(self.task.name, DURABLE, number)
            self.write("durable", DURABLE, number)
            try:
                stored = client.publish(topic, body_of(event), DURABLE, durable=True)
            except QueueFullError as error:
                self.write("stored", DURABLE, number, FAILED, str(error))
            else:
                stored.add_done_callback(lambda done, number=number: self._stored(done, number))  # type: ignore[misc]
                stored.add_done_callback(waiting.discard)
                waiting.add(stored)
            number += 1
            await self._pause(self.chance.expovariate(DURABLE_HZ))
        if waiting:
            await asyncio.wait(waiting)

    def _stored(self, done: asyncio.Future[str], number: int) -> None:
        error = done.exception()
        if error is None:
            self.write("stored", DURABLE, number, OK, done.result())
        else:
            refused = isinstance(error, RefusedError)
            self.write("stored", DURABLE, number, FAILED if refused else UNKNOWN, str(error))

    async def subscribe(self, client: Client) -> None:
        """Everything that is published, for as long as this runs."""
        subscription = await client.subscribe(self.task.topic.format(name="#"), since=0)
        assert client.node is not None
        self.write("up", client.node.name)
        reading = asyncio.ensure_future(self._read(subscription))
        await self.stopping.wait()
        await self._end()
        self.write("dropped", subscription.dropped, subscription.older)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, subscription: object) -> None:
        message: Message
        async for message in subscription:  # type: ignore[attr-defined]
            self.write("event", *event_of(message.body))

    # variables and modes

    async def register(self, client: Client) -> None:
        """Variables whose values count, at a steady rate, until the very end."""
        made = [await client.register(*names, rate=VALUES_HZ) for names in self.task.variables]
        self.write("registered", len(made))
        publishing = asyncio.ensure_future(self._publish_values(made))
        await self.stopping.wait()
        await self._end()
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)

    async def _publish_values(self, variables: list[Variable]) -> None:
        for value in itertools.count():
            for variable in variables:
                variable.publish(float(value))
            await asyncio.sleep(1 / VALUES_HZ)

    async def watch(self, client: Client) -> None:
        """Holds every variable, and asks for another quality of one now and then."""
        held: dict[tuple[str, str], Watch] = {}
        while not self.stopping.is_set():
            names = self.chance.choice(self.task.variables)
            await self._watch(client, held, names, self.chance.choice(QUALITIES))
            await self._pause(self.chance.uniform(*CHANGE_S))
        for names in self.task.variables:
            if names not in held or held[names].withdrawn is not None:
                await self._watch(client, held, names, QUALITIES[0])
        before = {names: watch.updates for names, watch in held.items()}
        began_ns = self.write("done")
        print("done", flush=True)
        await self.ending.wait()
        for names, watch in held.items():
            if watch.withdrawn is None and watch.granted:
                interval_ns = round(max(each.interval for each in watch.granted.values()) * 1e9)
                self.write("watched", "/".join(names), interval_ns, watch.updates - before[names],
                           time.monotonic_ns() - began_ns)  # fmt: skip

    async def _watch(
        self, client: Client, held: dict[tuple[str, str], Watch], names: tuple[str, str], qos: Qos
    ) -> None:
        self.write("watch", "/".join(names), qos.interval, qos.redundancy)
        try:
            before = held.get(names)
            held[names] = await client.watch(*names, qos=qos, wait_s=2.0)
            self.write("granted", "/".join(names))
            if before is not None:
                await client.unwatch(before)
        except ChappeError as error:
            self.write("not granted", "/".join(names), type(error).__name__, str(error))

    async def operate(self) -> None:
        """Modes, one change after the other, at whichever broker leads, and what it says in between."""
        while not self.stopping.is_set():
            mode = self.chance.randrange(MODES)
            for url in self.task.url.split(","):
                try:
                    async with asyncio.timeout(ASK_S), self._connect(url, 0.0) as client:
                        if await self._reads_mode(client):
                            await self._change_mode(client, mode)
                            await self._reads_mode(client)
                            break
                except (ChappeError, TimeoutError) as error:
                    self.write("not reached", url, str(error))
            await self._pause(self.chance.uniform(*CHANGE_S))
        await self._end()

    async def _change_mode(self, client: Client, mode: int) -> None:
        self.write("mode", mode)
        try:
            await client.operate(ChangeMode(id=0, mode=mode))
            self.write("mode answer", OK)
        except (LinkError, TimeoutExpired) as error:
            self.write("mode answer", UNKNOWN, str(error))
        except ChappeError as error:
            self.write("mode answer", FAILED, type(error).__name__, str(error))

    async def _reads_mode(self, client: Client) -> bool:
        """Whether this one leads and says the mode, which is written down."""
        began_ns = time.monotonic_ns()
        try:
            rows = await client.list("modes")
        except ChappeError:
            return False
        self.write("mode read", began_ns, rows[0]["mode"])
        return True


def main() -> None:
    """Run the task of the file named by the argument."""
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Task)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Actor(task).run())


if __name__ == "__main__":
    main()
