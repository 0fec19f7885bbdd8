"""The messages between a router and the worker process of its functions, through the pipes of the process.

Each message is a length of four bytes and a msgspec struct in MessagePack. The worker ends
when its standard input does.
"""

from __future__ import annotations

import msgspec

from chappe.errors import ProtocolError
from chappe.wire.base import Variable
from chappe.wire.management import Function

LIMIT = 16 << 20  # bytes of one message
BLAME_BYTES = 8  # id of the function that calculates now, id of the one whose package is being imported; 0: none


class Start(msgspec.Struct, tag=True, frozen=True):
    """The first message: where the router listens for its worker, and the token that it takes once."""

    router: str
    url: str
    token: str
    blame: str  # file of BLAME_BYTES
    memory_bytes: int  # that functions may use beside what the worker needs itself
    calculation_s: float  # of the processor that one calculation of registered code may take
    report_s: float  # between two reports


class Run(msgspec.Struct, tag=True, frozen=True):
    """Run a function, in place of the one that has the same output."""

    output: Variable
    function: Function
    inputs: tuple[Variable, ...]


class Stop(msgspec.Struct, tag=True, frozen=True):
    variable_id: int


class FunctionState(msgspec.Struct, frozen=True):
    """How a function does."""

    variable_id: int
    state: str  # waiting for inputs, running, stopped
    reason: str = ""
    counters: dict[str, int] = {}


class Report(msgspec.Struct, tag=True, frozen=True):
    """The worker lives; what became of its functions."""

    functions: tuple[FunctionState, ...]


ToWorker = Start | Run | Stop
_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(ToWorker)
_reports = msgspec.msgpack.Decoder(Report)


def encode(message: ToWorker | Report) -> bytes:
    """The message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Messages:
    """Cuts a stream of bytes into message bodies."""

    def __init__(self) -> None:
        self._arrived = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now; ProtocolError if one is longer than allowed."""
        self._arrived += data
        bodies = []
        while len(self._arrived) >= 4:
            size = int.from_bytes(self._arrived[:4], "big")
            if size > LIMIT:
                raise ProtocolError(f"a message of {size} bytes between router and worker; the most allowed is {LIMIT}")
            if len(self._arrived) < 4 + size:
                break
            bodies.append(bytes(self._arrived[4 : 4 + size]))
            del self._arrived[: 4 + size]
        return bodies


def decode_request(body: bytes) -> ToWorker:
    """A message of the router."""
    try:
        message: ToWorker = _requests.decode(body)
        return message
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the router sent no valid request: {error}") from None


def decode_report(body: bytes) -> Report:
    """A message of the worker."""
    try:
        return _reports.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the worker sent no report: {error}") from None


def blamed(content: bytes) -> int:
    """Whose fault it may be that the worker died; 0: nobody's."""
    return int.from_bytes(content[:4], "big") or int.from_bytes(content[4:BLAME_BYTES], "big")
