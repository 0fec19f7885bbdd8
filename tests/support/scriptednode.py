"""A node that does as a test says: real sockets, answers and notices of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from chappe.wire import control
from chappe.wire.frames import PREAMBLE, PREAMBLE_SIZE, FrameReader, Kind, encode_frame
from chappe.wire.status import Value, encode_status, record

Script = Callable[[control.Request], control.Message | None]


class ScriptedNode:
    """Welcomes every client; `script(request)` gives the answer to each request, None: Done."""

    def __init__(self, script: Script, mode: int = 0) -> None:
        self.mode = mode
        self.requests: list[control.Request] = []
        self.url = ""
        self._script = script
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def serving(cls, script: Script, mode: int = 0) -> AsyncIterator[ScriptedNode]:
        """Listen on a free port of the loopback until the end of the test."""
        node = cls(script, mode)
        node._server = await asyncio.start_server(node._serve, "127.0.0.1", 0)
        node.url = f"tcp://127.0.0.1:{node._server.sockets[0].getsockname()[1]}"
        try:
            yield node
        finally:
            node._server.close()
            node.cut()
            await node._server.wait_closed()

    def cut(self) -> None:
        """End every connection."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()

    def tell(self, message: control.Message) -> None:
        """Send a message to every client."""
        for writer in self._writers:
            writer.write(encode_frame(Kind.CONTROL, control.encode(message)))

    def values(self, *values: tuple[int, int, Value]) -> None:
        """Send (variable, created, value) to every client, in one frame."""
        payload = encode_status(record(created, variable, value) for variable, created, value in values)
        for writer in self._writers:
            writer.write(encode_frame(Kind.STATUS, payload))

    def asked(self, kind: type[control.Request]) -> list[control.Request]:
        """The requests of one kind."""
        return [request for request in self.requests if type(request) is kind]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        try:
            await reader.readexactly(PREAMBLE_SIZE)
            writer.write(PREAMBLE)
            while piece := await reader.read(65536):
                for frame in frames.feed(piece):
                    if frame.kind == Kind.PROBE:
                        writer.write(encode_frame(Kind.ECHO, frame.payload))
                    elif frame.kind == Kind.CONTROL:
                        self._answer(control.decode(frame.payload), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, message: control.Message, writer: asyncio.StreamWriter) -> None:
        if isinstance(message, control.Hello):
            answer: control.Message = control.Welcome(
                name="scripted", session=bytes(16), issuer=bytes(16), capabilities=control.CAPABILITIES, mode=self.mode
            )
            self._writers.append(writer)
        elif isinstance(message, control.Request):
            self.requests.append(message)
            answer = self._script(message) or control.Done(id=message.id)
        else:
            return
        writer.write(encode_frame(Kind.CONTROL, control.encode(answer)))
