"""Between the sockets and the control protocol: takes what arrived, carries out what it asks for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns

import msgspec
import structlog

from chappe.core.accounts import Accounts, Holder
from chappe.core.listing import Find, listing
from chappe.core.node import NodeCore
from chappe.core.session import Session
from chappe.errors import ProtocolError
from chappe.links._socket import clocks
from chappe.links.tick import FlushTick
from chappe.machine import (
    RECONNECT,
    Audit,
    AuditIntent,
    AuditWritten,
    Close,
    Delegate,
    Dial,
    Effect,
    FreePort,
    HangUp,
    Log,
    Publish,
    Send,
)
from chappe.runtime.background import MOST, Background
from chappe.runtime.links.alternates import Alternates
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.datagrams import Datagrams
from chappe.security.audit import AuditLog, Line
from chappe.wire.control import KINDS, Failed, Goodbye, List, Message, OpenLink, decode

log = structlog.get_logger(__name__)

BUDGET_NS = 1_000_000  # of control messages handled in one tick: forwarding waits for no more than that
BROKER_BUDGET_NS = 10_000_000  # a broker forwards nothing: what it decides in one tick is one commit and fewer writes
FAREWELL = b"Goodbye"  # somewhere in the payload, before it is worth decoding
BACKLOG_LIMIT = 4_096  # messages of one connection that wait here before it is no longer read
BACKLOG_OVERDRAWN = 64  # of one whose identity has used up its time
BACKLOG_BYTES = 8 << 20  # of them together
BYTES_OVERDRAWN = 64 << 10
TOGETHER = 8  # messages of one connection before it is the turn of the next
QUESTION_NS = 60_000  # that a question of the engine about a topic costs, with what follows from its answer
BYTE_NS = 1  # that reading a byte takes, and deciphering and copying it
QUESTIONS = 2  # asked in one step in the background
MESSAGE_NS = 20_000  # that a message of a node costs at least: it sends few, each about many things
REFUSED_NS = 10_000_000  # that something of a node which cannot be believed costs: honest nodes say nothing like that
RECORDS_LIMIT = 65_536  # lines that wait for the audit log
OWED = 65_536  # outcomes that wait for a disk that fails; their intents are on it


class Shell:
    """Runs before each flush of a tick, so that answers leave with the data that asked for them."""

    def __init__(
        self, core: NodeCore, connections: Connections, audit: AuditLog | None, datagrams: Datagrams,
        alternates: Alternates, find: Find, publish: Callable[[str, bytes, str], None],
        hasten: Callable[[], None], dialling: Callable[[Dial | HangUp], None], budget_ns: int = BUDGET_NS,
    ) -> None:  # fmt: skip
        """`find` gives the rows of listings, `publish(topic, body, content_type)` is for events of the node itself.
        `dialling` keeps links that cells want, and ends them.

        `hasten()`: messages were handled, the member of the mesh may have something to do.
        """
        self._core = core
        self._alternates = alternates
        self._find = find
        self._hasten = hasten
        self._dialling = dialling
        self._publish = publish
        self.tick: FlushTick | None = None  # set once both exist
        self._throttles = False  # whether clients have a rate limit
        self.paused = 0  # times that a connection was not read because too much of it waited
        self._engine = core.engine
        self._connections = connections
        self._audit = audit
        self._datagrams = datagrams
        self._budget_ns = budget_ns
        self._queues: dict[int, _Queue] = {}  # what arrived and nobody has looked at, by port
        self._ready: OrderedDict[int, None] = OrderedDict()  # ports whose messages are handled in turn
        self.accounts = Accounts()
        self._control_bytes = 0  # that arrived, ever
        self.background = Background(self.data_bytes, self._give_up)
        self._asking: set[int] = set()  # ports whose questions are asked in the background
        self._deferred: set[int] = set()  # ports that are not read until what they sent was looked at
        self._log = log.bind()  # once: every command is logged, most of them at a level that nobody asked for
        self._records: list[Audit | AuditIntent] = []  # not yet given to the disk
        self._owed: deque[Line] = deque(maxlen=OWED)  # outcomes that the disk did not take
        self._intended: deque[AuditIntent] = deque()  # written down, and to be done
        self._recording: asyncio.Task[None] | None = None

    def begin(self, tick: FlushTick) -> None:
        """The loop runs: `tick` writes what is queued."""
        self.tick = tick

    def arrived(self) -> None:
        """Handle what sockets delivered since the last flush; where that is data alone, this costs next to nothing."""
        if self._deferred or self._engine.deferred:
            self._feed_deferred()
        control = self._engine.take_control()
        if control:
            self._take(control)
        self._core.collect()
        for port, questions in self._engine.take_asked():
            holder = self._holder(port)
            if holder is not None:
                self.accounts.charge(holder, questions * QUESTION_NS, perf_counter_ns())
        if self._ready or self._intended or self._core.busy:
            self._work()
        if self._throttles:
            self._throttle()

    def _feed_deferred(self) -> None:
        """Go on with ports that ask or say much at once; they are not read until nothing of them waits."""
        waiting = self._engine.deferred
        due = [port for port in waiting if not self._waits(port)]
        if due:
            for port, error in self._engine.feed_deferred(due):
                self.perform([Close(port, str(error))])
            assert self.tick is not None
            self.tick.loop.call_soon(self.tick.soon)
        if due or self._deferred != set(waiting):
            self._follow_deferred()

    def _waits(self, port: int) -> bool:
        """Whether what is left of a port's bytes has to wait on: for its messages, or for its share of the loop."""
        if port in self._asking:
            return True
        queue = self._queues.get(port)
        if queue is not None and queue.paused:
            return True
        holder = self._holder(port)
        overdrawn = holder is not None and self.accounts.overdrawn(holder, perf_counter_ns())
        self._engine.be_patient(port, overdrawn)
        if holder is not None and overdrawn:
            self._asking.add(port)
            self.background.add(holder[1], port, self._questions_of(port), bounded=False)
        return overdrawn

    def _questions_of(self, port: int) -> Iterator[None]:
        """Go on with the bytes of a port, a few questions with each step, until nothing of them waits."""
        while port in self._asking and port in self._engine.deferred:
            queue = self._queues.get(port)
            if queue is not None and queue.paused:
                break
            for _, error in self._engine.feed_deferred((port,), QUESTIONS):
                self.perform([Close(port, str(error))])
            assert self.tick is not None
            self.tick.soon()
            yield
        self._asking.discard(port)
        self._follow_deferred()

    def welcome(self, port: int) -> None:
        """A connection is there; of one whose identity has used up its time nothing is asked at once."""
        holder = self._holder(port)
        if holder is not None and self.accounts.overdrawn(holder, perf_counter_ns()):
            self._engine.be_patient(port, True)

    def _follow_deferred(self) -> None:
        """Read the ports of which nothing waits, and no others."""
        waiting = set(self._engine.deferred)
        for port in waiting:  # also again: its rate may have let it go on
            connection = self._connections.by_port.get(port)
            if connection is not None:
                connection.link.pause_reading()
        for port in self._deferred - waiting:
            connection = self._connections.by_port.get(port)
            if connection is not None and not connection.paused_until_ns:
                connection.link.resume_reading()
        self._deferred = waiting

    def _holder(self, port: int) -> Holder | None:
        """Who pays for the time that a port uses; nobody for brokers, administrators and workers of this node."""
        connection = self._connections.by_port.get(port)
        if connection is None or self._budget_ns != BUDGET_NS:
            return None
        session = connection.session
        if session.manager or session.internal or session.identity.role == "admin":
            return None
        return ("node" if session.role == "node" else "client"), session.identity.name

    def limit_rates(self, limited: bool) -> None:
        """Whether clients have a rate limit: then every tick looks at it."""
        assert self.tick is not None
        self._throttles = self.tick.flusher.attentive = limited

    @property
    def behind(self) -> bool:
        """Whether control messages have arrived that nobody has looked at."""
        return bool(self._queues)

    def data_bytes(self) -> int:
        """How many bytes arrived, ever, that are no control messages."""
        return self.tick.flusher.bytes_in - self._control_bytes if self.tick is not None else 0

    def sweep(self) -> None:
        """Forget echoes that nobody takes; the engine counts them."""
        if self._core.member is None:
            self._engine.take_echoes()

    def _work(self) -> None:
        now_ns = perf_counter_ns()
        until_ns = now_ns + self._budget_ns
        while self._intended and now_ns < until_ns:
            self._audited(self._intended.popleft())
            now_ns = perf_counter_ns()
        while self._ready and now_ns < until_ns:
            port = next(iter(self._ready))
            holder = self._holder(port)
            began_ns, refused, count = thread_time_ns(), self._refused_of(holder), 0
            for _ in range(TOGETHER):
                self._handle(port)
                count += 1
                now_ns = perf_counter_ns()
                if port not in self._ready or now_ns >= until_ns:
                    break
            took_ns = thread_time_ns() - began_ns  # of the processor: others may have had it meanwhile
            if holder is not None and holder[0] == "node":
                took_ns = max(took_ns, count * MESSAGE_NS) + (self._refused_of(holder) - refused) * REFUSED_NS
            self._charge(port, holder, took_ns, now_ns)
        self.perform(self._core.work())
        self._hasten()
        if self._ready or self._intended or self._core.busy:
            assert self.tick is not None
            self.tick.loop.call_soon(self.tick.soon)

    def _refused_of(self, holder: Holder | None) -> int:
        if holder is None or holder[0] != "node":
            return 0
        return self._core.refusals_of(holder[1]) + self._datagrams.refused

    def _charge(self, port: int, holder: Holder | None, took_ns: int, now_ns: int) -> None:
        """The next port has its turn; a client that has used up what is done at once goes on in the background."""
        if port in self._ready:
            self._ready.move_to_end(port)
        if holder is not None and self.accounts.charge(holder, took_ns, now_ns) and port in self._ready:
            del self._ready[port]
            self.background.add(holder[1], port, self._rest_of(port, self._queues[port]), bounded=False)

    def _rest_of(self, port: int, queue: _Queue) -> Iterator[None]:
        """Handle what a client has sent, one message with each step."""
        while queue.messages and self._queues.get(port) is queue:
            self._handle(port)
            self.perform(self._core.control.flush())
            self._hasten()
            yield
        assert self.tick is not None
        self.tick.soon()

    def _handle(self, port: int) -> None:
        payload = self._next(port)
        try:
            self._receive(port, payload)
        except Exception:  # a defect of ours in one message must not cost the others theirs
            log.exception("a control message could not be handled", port=port)
            self._give_up(port)

    def _audited(self, intent: AuditIntent, error: str = "") -> None:
        port = intent.source
        assert isinstance(port, int)
        try:
            self.perform(self._core.receive(port, AuditWritten(intent.number, error), self._engine.mono_ns))
        except Exception:  # as above
            log.exception("a command could not be carried out", port=port, target=intent.address)
            self._give_up(port)

    def _give_up(self, port: int) -> None:
        self.perform([Close(port, "the node failed to handle a control message; see its log")])

    def _receive(self, port: int, payload: bytes) -> None:
        message = self._decode(port, payload)
        if message is not None:
            self.perform(self._core.receive(port, message, self._engine.mono_ns))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry out what the control protocol asks for."""
        for effect in effects:
            match effect:
                case Send(int() as port, message):
                    self._connections.send(port, message)
                case Audit():
                    self._record(effect)
                case AuditIntent():
                    self._intend(effect)
                case Close(int() as port, reason, code):
                    connection = self._connections.by_port.get(port)
                    if connection is not None:
                        farewell = Goodbye(reason=reason) if code == RECONNECT else None
                        self._connections.close(connection, reason, code, farewell)
                case Delegate(int() as port, OpenLink() as request):
                    self._alternates.serve(port, request, self.send)
                case Delegate(int() as port, List() as request):
                    self._list(port, request)
                case Delegate(int() as port, message):
                    assert self.tick is not None
                    self._datagrams.receive(port, message, self._engine.mono_ns, self.tick)
                    self._connections.hurry()
                case FreePort(port):
                    self._connections.free(port)
                case Publish(topic, body, content_type):
                    self._publish(topic, body, content_type)
                case Dial() | HangUp():
                    self._dialling(effect)
                case Log(event, level, fields):
                    getattr(self._log, level)(event, node=self._core.name, **fields)

    def send(self, port: int, message: Message) -> None:
        """An answer that nothing else is written with."""
        self._connections.send(port, message)
        assert self.tick is not None
        self.tick.soon()

    def _list(self, port: int, request: List) -> None:
        """Answer a listing in slices beside forwarding, behind what that identity asked for before."""
        session, access = self._core.sessions.get(port), self._core.access
        if session is None:
            return
        identity = session.identity.name
        job = listing(self._find, access.book, session, request, access.count_refusal)
        if not self.background.add(identity, port, self._performed(job)):
            reason = f"{MOST} requests of {identity} wait to be answered; wait for their answers"
            self._connections.send(port, Failed(id=request.id, code="limit", reason=reason))

    def _performed(self, job: Iterator[list[Effect]]) -> Iterator[None]:
        for effects in job:
            if effects:
                self.perform(effects)
                assert self.tick is not None
                self.tick.soon()
            yield

    def hear_out(self, port: int) -> None:
        """A client's connection has ended: that it said goodbye counts, even if nobody has looked at it yet."""
        self._take(self._engine.take_control())
        queue = self._queues.get(port)
        for payload in list(queue.messages) if queue is not None else ():
            if FAREWELL in payload:
                self._receive(port, payload)

    def forget(self, session: Session) -> None:
        """A connection is over: what it still had to say is not heard, the number of its port may be used again."""
        self._queues.pop(session.port, None)
        self._ready.pop(session.port, None)
        self._asking.discard(session.port)
        self.background.forget(session.identity.name, session.port)

    async def recorded(self) -> None:
        """Everything is in the audit log, or the disk does not take it."""
        if self._recording is not None:
            await asyncio.wait([self._recording])
        if self._owed and self._audit is not None:
            await self._write_batch(self._audit)

    def _take(self, control: list[tuple[int, bytes]]) -> None:
        for port, payload in control:
            queue = self._queues.get(port)
            if queue is None:
                queue = self._queues[port] = _Queue()
                holder = self._holder(port)
                if holder is not None and self.accounts.overdrawn(holder, perf_counter_ns()):
                    queue.limit, queue.most_bytes = BACKLOG_OVERDRAWN, BYTES_OVERDRAWN
                    self.background.add(holder[1], port, self._rest_of(port, queue), bounded=False)
                else:
                    self._ready[port] = None
            queue.messages.append(payload)
            queue.bytes += len(payload)
            self._control_bytes += len(payload) + 4
            if not queue.paused and (len(queue.messages) >= queue.limit or queue.bytes >= queue.most_bytes):
                self._pause(port, queue)

    def _pause(self, port: int, queue: _Queue) -> None:
        """Read that connection no more until half of what waits is handled.

        Of nodes, too: nothing that is handled here waits for the other node, so two that pause each other go on.
        """
        connection = self._connections.by_port.get(port)
        if connection is not None and not connection.paused_until_ns:
            queue.paused = True
            connection.link.pause_reading()
            connection.paused_until_ns = 1
            self.paused += 1

    def _next(self, port: int) -> bytes:
        queue = self._queues[port]
        payload = queue.messages.popleft()
        queue.bytes -= len(payload)
        queue.taken += len(payload)
        if queue.paused and len(queue.messages) <= queue.limit // 2 and queue.bytes <= queue.most_bytes // 2:
            queue.paused = False
            connection = self._connections.by_port.get(port)
            if connection is not None and connection.paused_until_ns == 1:
                self._read_on(connection, queue)
        if not queue.messages:
            del self._queues[port]
            self._ready.pop(port, None)
        return payload

    def _read_on(self, connection: Connection, queue: _Queue) -> None:
        """At once, or after a rest if its identity has used up its time: reading costs time, too."""
        if queue.limit == BACKLOG_OVERDRAWN:
            assert self.tick is not None
            rest_s = self.background.rest_s(queue.taken * BYTE_NS)
            queue.taken = 0
            self.tick.loop.call_later(rest_s, self._go_on, connection)
        else:
            connection.paused_until_ns = 0
            connection.link.resume_reading()

    def _decode(self, port: int, payload: bytes) -> Message | None:
        try:
            return decode(payload)
        except ProtocolError as error:
            unknown = _unknown_kind(payload)
            if unknown is not None:
                self._connections.send(port, Failed(id=unknown, code="unsupported", reason=str(error)))
            else:
                self.perform([Close(port, str(error))])
            return None

    def _throttle(self) -> None:
        for port in self._engine.throttled():
            connection = self._connections.by_port.get(port)
            if connection is not None and not connection.paused_until_ns:
                self._slow_down(connection)

    def _slow_down(self, connection: Connection) -> None:
        """Leave a connection unread for as long as it is above its rate."""
        pause_ns = self._engine.throttled_ns(connection.port)
        if pause_ns > 0:
            assert self.tick is not None
            connection.link.pause_reading()
            connection.paused_until_ns = self._engine.mono_ns + pause_ns
            self.tick.loop.call_later(pause_ns / 1e9, self._go_on, connection)

    def _go_on(self, connection: Connection) -> None:
        """Read on, unless what the engine had of it already was above its rate again."""
        connection.paused_until_ns = 0
        if self._connections.by_port.get(connection.port) is connection:
            clocks(self._engine)
            self._slow_down(connection)
        if not connection.paused_until_ns:
            connection.link.resume_reading()

    def _record(self, record: Audit) -> None:
        who, outcome = str(record.identity), record.outcome
        say = self._log.debug if outcome == "done" else self._log.warning
        say("command", who=who, target=record.address, outcome=outcome, reason=record.reason)
        if self._audit is None:
            self._answer(record)
        else:
            self._write(record, self._audit)

    def _intend(self, intent: AuditIntent) -> None:
        if self._audit is None:
            self._audited(intent)
        else:
            self._write(intent, self._audit)

    def _answer(self, record: Audit) -> None:
        if record.answer is not None:
            self.perform([record.answer])

    def _write(self, item: Audit | AuditIntent, audit: AuditLog) -> None:
        if len(self._records) + len(self._intended) >= RECORDS_LIMIT:
            self._unrecorded([item], f"{RECORDS_LIMIT} lines wait for it")
            return
        self._records.append(item)
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._write_down(audit))

    def write_down(self, lines: Iterable[Line]) -> None:
        """Lines for the log and the audit log that no answer waits for."""
        for line in lines:
            if line.who is not None and line.who.role == "node":
                reason = line.reason.partition("\n")[0]
                log.warning("refused to a neighbour", neighbour=line.who.name, action=line.action,
                            address=line.target[:200], reason=reason, **line.details)  # fmt: skip
            else:
                log.warning("publishing refused", client=str(line.who), topic=line.target, **line.details)
            if self._audit is not None and line.who is not None:
                record = Audit(line.who, line.action, line.target, line.outcome, line.reason, line.details, None)
                self._write(record, self._audit)

    async def _write_down(self, audit: AuditLog) -> None:
        """Commands are done and answers leave when their lines are on disk, in order; all that wait share one sync."""
        try:
            while self._records:
                await self._write_batch(audit)
        finally:
            self._recording = None

    async def _write_batch(self, audit: AuditLog) -> None:
        batch, self._records = self._records, []
        owed = list(self._owed)
        try:
            await asyncio.to_thread(audit.record_all, [*owed, *map(_line, batch)])
        except Exception as error:  # whatever it is: what is not written down is not done
            self._unrecorded(batch, str(error))
        else:
            for _ in owed:
                self._owed.popleft()
            for item in batch:
                if isinstance(item, AuditIntent):
                    self._intended.append(item)
                else:
                    self._answer(item)
        assert self.tick is not None
        self.tick.soon()

    def _unrecorded(self, batch: Sequence[Audit | AuditIntent], problem: str) -> None:
        """Nothing is done that could not be written down; the outcome of what was is written when that is possible."""
        log.error("audit log not written: commands are refused", reason=problem)
        reason = f"the audit log cannot be written: {problem}; nothing was done"
        for item in batch:
            if isinstance(item, AuditIntent):
                self._audited(item, reason)
                continue
            if item.number:
                self._owed.append(_line(item))
            self._answer(item)


def _line(item: Audit | AuditIntent) -> Line:
    outcome, reason = ("intent", "") if isinstance(item, AuditIntent) else (item.outcome, item.reason)
    return Line(item.identity, item.action, item.address, outcome, reason, item.details, item.number)


@dataclass(slots=True, eq=False)
class _Queue:
    """Messages of one connection that wait."""

    messages: deque[bytes] = field(default_factory=deque)
    bytes: int = 0
    limit: int = BACKLOG_LIMIT
    most_bytes: int = BACKLOG_BYTES
    taken: int = 0  # bytes that were handled since it was last paused
    paused: bool = False  # the connection is not read


class _Outline(msgspec.Struct):
    k: str
    id: int = 0


def _unknown_kind(payload: bytes) -> int | None:
    """The id of a request whose kind we do not know; None if the fault is another."""
    try:
        outline = msgspec.msgpack.decode(payload, type=_Outline)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return None if outline.k in KINDS else outline.id
