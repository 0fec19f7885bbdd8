"""A client in plain Python that speaks the wire contract, for tests that need to see or send single frames."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

from chappe.links.address import parse
from chappe.wire import control
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.frames import PREAMBLE, FrameReader, Kind, encode_frame
from chappe.wire.payloads import (
    Credit,
    Denial,
    Echo,
    Loss,
    Parcel,
    Payload,
    Probe,
    Status,
    decode_payload,
    encode_payload,
)
from chappe.wire.status import Record, Value, record

Answer = TypeVar("Answer", bound=control.Answer)


class WireClient:
    """One connection; keeps everything that arrived."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: bytes) -> None:
        self.session = session
        self.welcome: control.Welcome | None = None
        self.refused: control.Refused | None = None
        self.goodbye: control.Goodbye | None = None
        self.records: list[Record] = []
        self.events: list[tuple[str | int, bytes]] = []
        self.raw_events: list[Event] = []
        self.told: list[control.Message] = []  # control messages that answer no request
        self.issuers: set[bytes] = set()  # that were defined for it
        self.losses: list[Loss] = []
        self.credits: list[Credit] = []
        self.denials: list[Denial] = []
        self.parcels: list[bytes] = []
        self.heartbeats = 0
        self.closed = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._answers: dict[int, asyncio.Future[control.Answer]] = {}
        self._echoes: dict[int, asyncio.Future[None]] = {}
        self._topics_in: dict[int, str | int] = {}
        self._topics_out: dict[tuple[str, str], int] = {}
        self._changed = asyncio.Event()
        self._number = 0
        self._sequence = 0
        self._reading = asyncio.Event()
        self._reading.set()
        self._task = asyncio.get_running_loop().create_task(self._read())

    @property
    def issuer(self) -> bytes:
        """Who publishes its events, as its node says."""
        assert self.welcome is not None
        return self.welcome.issuer

    @classmethod
    async def connect(
        cls, url: str, *, tls: ssl.SSLContext | None = None, preamble: bytes = PREAMBLE, send_hello: bool = True,
        **hello: Any,
    ) -> WireClient:  # fmt: skip
        """Connect and say hello; does not wait for the answer."""
        address = parse(url)
        if address.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        session = hello.setdefault("session", secrets.token_bytes(16))
        client = cls(reader, writer, session)
        if send_hello:
            fields = {"role": "client", "name": "test", "capabilities": control.CAPABILITIES, **hello}
            writer.write(preamble + encode_frame(Kind.CONTROL, control.encode(control.Hello(**fields))))
        return client

    @classmethod
    async def open(cls, url: str, **options: Any) -> WireClient:
        """Connect and be welcomed."""
        client = await cls.connect(url, **options)
        await client.until(lambda: client.welcome is not None or client.closed.is_set())
        if client.welcome is None:
            await client.close()
            raise ConnectionError(client.refused.reason if client.refused else "closed without a word")
        return client

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._task
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait for a condition over what arrived."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def send(self, *payloads: Payload) -> None:
        for payload in payloads:
            kind, body = encode_payload(payload)
            self._writer.write(encode_frame(kind, body))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def pause(self) -> None:
        """Read no more."""
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    async def ask(self, request: type[control.Request], /, **fields: Any) -> Any:
        """The answer to a request."""
        self._number += 1
        waiting = self._answers[self._number] = asyncio.get_running_loop().create_future()
        self.send(request(id=self._number, **fields))
        async with asyncio.timeout(30):
            return await waiting

    async def flush(self) -> None:
        """The node's engine has everything sent before."""
        self._number += 1
        waiting = self._echoes[self._number] = asyncio.get_running_loop().create_future()
        self.send(Probe(self._number, 0))
        await self.drain()
        async with asyncio.timeout(30):
            await waiting

    async def register(self, name: str, rate_hz: int = 0, **fields: Any) -> int:
        """Register `publisher/variable` and get its id."""
        publisher, _, variable = name.partition("/")
        rate = {"rate_num": rate_hz, "rate_den": 1_000_000_000} if rate_hz else {}
        answer = await self.ask(control.Register, publisher=publisher, variable=variable, **rate, **fields)
        assert isinstance(answer, control.Registered), answer
        return answer.variable_id

    async def watch(self, name: str, interval_ns: int = 0, **fields: Any) -> control.Watching:
        publisher, _, variable = name.partition("/")
        answer = await self.ask(
            control.Watch, publisher=publisher, variable=variable, interval_ns=interval_ns, **fields
        )
        assert isinstance(answer, control.Watching), answer
        return answer

    async def subscribe(self, pattern: str, **fields: Any) -> None:
        answer = await self.ask(control.Subscribe, pattern=pattern, **fields)
        assert isinstance(answer, control.Done), answer

    def publish_status(self, variable: int, value: Value, created_ns: int | None = None) -> None:
        self.send(Status((record(created_ns or time.time_ns(), variable, value),)))

    async def open_inbox(self, key: bytes = b"") -> str:
        """The address of an inbox; without a key of the one for confirmations."""
        answer = await self.ask(control.OpenInbox, key=key)
        assert isinstance(answer, control.InboxOpened), answer
        return answer.address

    def publish(self, topic: str, body: bytes, *, kind: str = "s", **fields: Any) -> None:
        number = self._topics_out.get((kind, topic))
        if number is None:
            number = self._topics_out[kind, topic] = len(self._topics_out) + 1
            self.send(Topic(number, TopicName(topic, kind)))
        self._sequence += 1
        self.send(Event(number, self._sequence, body, **fields))

    async def _read(self) -> None:
        frames = FrameReader(0xFF_FFFF)
        preamble = b""
        try:
            while True:
                await self._reading.wait()
                data = await self._reader.read(65_536)
                if not data:
                    break
                if len(preamble) < len(PREAMBLE):
                    missing = len(PREAMBLE) - len(preamble)
                    preamble, data = preamble + data[:missing], data[missing:]
                for frame in frames.feed(data):
                    self._arrived(decode_payload(frame))
                self._changed.set()
        except OSError:
            pass
        finally:
            self.closed.set()
            self._changed.set()
            for waiting in [*self._answers.values(), *self._echoes.values()]:
                if not waiting.done():
                    waiting.set_exception(ConnectionError(str(self.refused or "closed")))
                    waiting.exception()

    def _arrived(self, payload: Payload) -> None:
        match payload:
            case Issuer():
                self.issuers.add(payload.issuer)
            case Status(records):
                self.records += records
            case Event():
                self.raw_events.append(payload)
                self.events.append((self._topics_in[payload.topic], payload.body))
            case Topic(number, topic):
                self._topics_in[number] = topic.name
            case Probe(token):
                self.heartbeats += token == 0
                self.send(Echo(payload))
            case Echo(probe):
                waiting = self._echoes.pop(probe.token, None)
                if waiting is not None:
                    waiting.set_result(None)
            case Loss():
                self.losses.append(payload)
            case Denial():
                self.denials.append(payload)
            case Parcel(content):
                self.parcels.append(content)
            case Credit():
                self.credits.append(payload)
            case control.Welcome():
                self.welcome = payload
            case control.Refused():
                self.refused = payload
            case control.Goodbye():
                self.goodbye = payload
            case control.Answer():
                answered = self._answers.pop(payload.id, None)
                if answered is not None:
                    answered.set_result(payload)
                else:
                    self.told.append(payload)
            case control.Notice() | control.Request() | control.Command():
                self.told.append(payload)
