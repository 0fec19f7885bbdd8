"""The handshake of a byte stream: two state machines without I/O, and the drivers that run them on a Raw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from chappe.errors import LinkError, ProtocolError, RefusedError, TimeoutExpired, VersionError
from chappe.links.link import Raw, control_frame
from chappe.wire.control import Hello, Message, Refused, Welcome, decode
from chappe.wire.frames import HEADER_SIZE, MAGIC, PREAMBLE, PREAMBLE_SIZE, Kind, check_preamble

HELLO_TIMEOUT_S = 10.0
MAX_HELLO = 65_536  # a token is the only large thing in a handshake
ROLES = ("client", "node")
SESSION_SIZE = 16
ISSUER_SIZE = 16  # in a Welcome to a client; a node gets none


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Agreed:
    """The handshake is over; `rest` are bytes that came after it."""

    hello: Hello
    welcome: Welcome
    rest: bytes


@dataclass(frozen=True, slots=True)
class Introduced:
    """The Hello is there and this side is not ready; `Acceptor.answer` when it is."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Ended:
    """Close the connection after what was sent; nobody got through."""

    error: Exception


Output: TypeAlias = Send | Introduced | Agreed | Ended
Decide: TypeAlias = Callable[[Hello], Welcome | Refused]


def shared(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """The capabilities that both named."""
    return tuple(word for word in ours if word in theirs)


class _Opening:
    """Bytes of the other side's preamble and first frame, however they are cut."""

    def __init__(self) -> None:
        self._arrived = bytearray()
        self._checked = False  # its preamble

    def receive(self, data: bytes) -> tuple[Message, bytes] | None:
        """First message and the bytes after it; None if that is not all there yet."""
        self._arrived += data
        if not self._checked:
            if not MAGIC.startswith(self._arrived[: len(MAGIC)]):
                check_preamble(bytes(self._arrived[:PREAMBLE_SIZE]))
            if len(self._arrived) < PREAMBLE_SIZE:
                return None
            check_preamble(bytes(self._arrived[:PREAMBLE_SIZE]))
            self._checked = True
            del self._arrived[:PREAMBLE_SIZE]
        if not self._arrived:
            return None
        if self._arrived[0] != Kind.CONTROL:
            raise ProtocolError(f"a frame of kind 0x{self._arrived[0]:02x} came before the handshake was over")
        size = int.from_bytes(self._arrived[1:HEADER_SIZE], "big") if len(self._arrived) >= HEADER_SIZE else 0
        if size > MAX_HELLO:
            raise ProtocolError(f"a handshake message has at most {MAX_HELLO} bytes, not {size}")
        if len(self._arrived) < HEADER_SIZE + size or len(self._arrived) < HEADER_SIZE:
            return None
        message = decode(bytes(self._arrived[HEADER_SIZE : HEADER_SIZE + size]))
        return message, bytes(self._arrived[HEADER_SIZE + size :])


class Connector:
    """The side that opened the connection."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._opening = _Opening()
        self.over = False

    def start(self) -> list[Output]:
        """What to send first."""
        return [Send(PREAMBLE + control_frame(self._hello))]

    def receive(self, data: bytes) -> list[Output]:
        """Take bytes of the other side, in pieces of any size."""
        if self.over:
            return []
        try:
            opened = self._opening.receive(data)
        except ProtocolError as error:
            return self._end(error)
        if opened is None:
            return []
        message, rest = opened
        if isinstance(message, Refused):
            return self._end(_refusal(message))
        if not isinstance(message, Welcome):
            return self._end(ProtocolError(f"expected Welcome, got {type(message).__name__}"))
        if len(message.session) != SESSION_SIZE:
            size = len(message.session)
            return self._end(ProtocolError(f"the session in Welcome has {size} bytes, not {SESSION_SIZE}"))
        if len(message.issuer) != (ISSUER_SIZE if self._hello.role == "client" else 0):
            size = len(message.issuer)
            return self._end(ProtocolError(f"the issuer in Welcome to a {self._hello.role} has {size} bytes"))
        self.over = True
        message.capabilities = shared(self._hello.capabilities, message.capabilities)
        return [Agreed(self._hello, message, rest)]

    def closed(self) -> list[Output]:
        """The stream ended."""
        return [] if self.over else self._end(LinkError("the other side closed the connection during the handshake"))

    def expired(self, timeout_s: float) -> list[Output]:
        """The answer took too long."""
        return [] if self.over else self._end(TimeoutExpired(f"no Welcome within {timeout_s:g} s"))

    def _end(self, error: Exception) -> list[Output]:
        self.over = True
        return [Ended(error)]


class Acceptor:
    """The side that was connected to; `decide` says Welcome or Refused to a Hello, at once unless it `waits`."""

    def __init__(self, decide: Decide, waits: Callable[[Hello], bool] = lambda _: False) -> None:
        self._decide = decide
        self._waits = waits
        self._introduced: tuple[Hello, bytes] | None = None
        self._opening = _Opening()
        self.over = False

    def start(self) -> list[Output]:
        """The preamble goes out at once, so that even a refused peer learns the version."""
        return [Send(PREAMBLE)]

    def receive(self, data: bytes) -> list[Output]:
        """Take bytes of the other side, in pieces of any size."""
        if self.over:
            return []
        try:
            opened = self._opening.receive(data)
            if opened is None:
                return []
            hello, rest = opened
            _check(hello)
        except VersionError as error:
            return self._refuse(Refused(reason=str(error), code="version"), error)
        except ProtocolError as error:
            return self._refuse(Refused(reason=str(error), code="protocol"), error)
        assert isinstance(hello, Hello)
        self._introduced = hello, rest
        return [Introduced(hello)] if self._waits(hello) else self.answer()

    def answer(self) -> list[Output]:
        """What is said to the Hello that was introduced."""
        if self.over or self._introduced is None:
            return []
        hello, rest = self._introduced
        answer = self._decide(hello)
        if isinstance(answer, Refused):
            return self._refuse(answer, RefusedError(answer.reason))
        answer.capabilities = shared(answer.capabilities, hello.capabilities)
        self.over = True
        return [Send(control_frame(answer)), Agreed(hello, answer, rest)]

    def closed(self) -> list[Output]:
        """The stream ended."""
        if self.over:
            return []
        self.over = True
        return [Ended(LinkError("the other side closed the connection during the handshake"))]

    def expired(self, timeout_s: float) -> list[Output]:
        """The Hello took too long."""
        if self.over:
            return []
        reason = f"no Hello within {timeout_s:g} s"
        return self._refuse(Refused(reason=reason, code="protocol"), TimeoutExpired(reason))

    def _refuse(self, answer: Refused, error: Exception) -> list[Output]:
        self.over = True
        return [Send(control_frame(answer)), Ended(error)]


def _check(hello: Message) -> None:
    if not isinstance(hello, Hello):
        raise ProtocolError(f"expected Hello, got {type(hello).__name__}")
    if hello.role not in ROLES:
        raise ProtocolError(f"role {hello.role[:32]!r} in Hello is unknown; it is one of {', '.join(ROLES)}")
    if len(hello.session) != SESSION_SIZE:
        raise ProtocolError(f"the session in Hello has {len(hello.session)} bytes, not {SESSION_SIZE}")
    if hello.heartbeat_ns <= 0:
        raise ProtocolError(f"heartbeat_ns in Hello is {hello.heartbeat_ns}; it must be positive")


def _refusal(message: Refused) -> Exception:
    if message.code == "version":
        return VersionError(f"refused: {message.reason}")
    if message.code == "draining":
        return LinkError(f"refused: {message.reason}")
    return RefusedError(f"refused: {message.reason}")


async def connect_handshake(raw: Raw, hello: Hello, timeout_s: float = HELLO_TIMEOUT_S) -> Welcome:
    """Introduce this side on a dialled connection; the Welcome with what both sides agreed on.

    VersionError, RefusedError, LinkError or TimeoutExpired otherwise; the connection is closed then.
    """
    return (await _drive(raw, Connector(hello), timeout_s)).welcome


async def accept_handshake(
    raw: Raw,
    decide: Decide,
    timeout_s: float = HELLO_TIMEOUT_S,
    ready: asyncio.Event | None = None,
) -> tuple[Hello, Welcome]:
    """Answer the Hello of an accepted connection; errors as of `connect_handshake`, once the other side has the reason.

    Clients are answered when `ready` is set: that time is not counted as theirs.
    """
    machine = Acceptor(decide, lambda hello: ready is not None and hello.role == "client" and not ready.is_set())
    agreed = await _drive(raw, machine, timeout_s, ready)
    return agreed.hello, agreed.welcome


async def _drive(
    raw: Raw, machine: Connector | Acceptor, timeout_s: float, ready: asyncio.Event | None = None
) -> Agreed:
    try:
        agreed = None
        _carry_out(raw, machine.start())
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while agreed is None:
                    data = await raw.read_some()
                    outputs = machine.receive(data) if data else machine.closed()
                    if outputs and isinstance(outputs[-1], Introduced) and isinstance(machine, Acceptor):
                        assert ready is not None
                        limit.reschedule(None)
                        await ready.wait()
                        limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                        outputs = machine.answer()
                    agreed = _carry_out(raw, outputs)
                await raw.drain()
        except TimeoutError:
            _carry_out(raw, machine.expired(timeout_s))
            raise TimeoutExpired(f"{raw.peer}: the handshake took longer than {timeout_s:g} s") from None
    except Exception:
        raw.close()
        raise
    except BaseException:
        raw.abort()
        raise
    raw.unread(agreed.rest)
    return agreed


def _carry_out(raw: Raw, outputs: list[Output]) -> Agreed | None:
    for output in outputs:
        if isinstance(output, Send):
            raw.write(output.data)
        elif isinstance(output, Agreed):
            return output
        elif isinstance(output, Ended):
            error = output.error
            error.args = (f"{raw.peer}: {error}", *error.args[1:])
            raise error
    return None
