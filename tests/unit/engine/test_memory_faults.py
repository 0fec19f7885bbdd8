"""Every call of the allocator fails once: the engine says so, stays consistent, and goes on.

A life of an engine with ports, topics, groups, routes through the mesh, events that wait, status and conflation is
lived again and again, each time with another call of the allocator failing, until none is left to fail.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from chappe.engine._engine import Engine, ForwardingDecision
from chappe.engine._memory import MemoryBudget
from chappe.engine._status import StatusTable
from chappe.engine._topics import TopicTable
from chappe.errors import ChappeError, RefusedError
from chappe.wire.events import Issuer
from chappe.wire.frames import Kind, encode_frame
from tests.support.clientpeer import event, status, topic
from tests.support.decisions import engine_with

FAILURES = (MemoryError, RefusedError)
INBOX = f"here@{'0123456789abcdef' * 2}"


def route(number: int, name: str, by: bytes) -> bytes:
    return encode_frame(Kind(0x32), struct.pack(">IBBH", number, ord("s"), 0, len(by)) + by + name.encode())


def drained(engine: Engine, port: int) -> bytes:
    taken = b""
    while piece := bytes(engine.peek(port)):
        taken += piece
        engine.consumed(port, len(piece))
    return taken


class Life:
    """What happens to an engine, step by step; a step that fails is counted, and the next one follows."""

    def __init__(self, failing: int) -> None:
        self.hold_ns = 0
        self.engine = Engine(
            seed=0,
            max_topics=90,
            max_issuers=8,
            authorize=lambda port, kind, name: not name.startswith(b"no/"),
            plan_route=lambda kind, name: ForwardingDecision(
                True, [(1, b"out")] if name.startswith(b"far") else [], self.hold_ns
            ),
            forward_route=lambda port, route, kind, name: ForwardingDecision(True, [(2, b"on")], groups=["g"]),
        )
        self.engine.clock(1, 1)
        self.failed = 0
        self.ports: list[int] = []
        self.engine.memory.fail(failing)
        for step in self.steps():
            try:
                step()
            except FAILURES:
                self.failed += 1
            except ChappeError:
                assert self.failed, "what it needs came before it"
        self.engine.memory.fail(0)

    def open(self, number: int, **options: object) -> None:
        if "peer" not in options:
            options["issuer"] = number.to_bytes(16, "big")
        self.ports.append(self.engine.open_port(account=f"a{number % 3}", **options))  # type: ignore[arg-type]

    def feed(self, place: int, data: bytes) -> None:
        if place < len(self.ports):
            self.engine.feed(self.ports[place], data)

    def steps(self) -> Iterator[Callable[[], object]]:
        engine = self.engine
        yield lambda: self.open(1, credit=4096)
        yield lambda: self.open(2, peer=True, retain=True)
        yield lambda: self.open(3, peer=True, retain=True)
        yield lambda: self.open(4, conflate=True)
        yield lambda: self.open(5, level=2)
        yield lambda: self.open(6, queue_bytes=2_000)
        yield lambda: self.open(7, queue_bytes=2_000)
        if len(self.ports) < 7:
            return
        for pattern, group in (("#", ""), ("a/+", ""), ("far/#", "g"), ("far/#", "h")):
            yield lambda pattern=pattern, group=group: engine.topics.subscribe(4, pattern, group=group)  # type: ignore[misc]
        for number in range(10):
            yield lambda number=number: engine.topics.subscribe(4, "far/#", group=f"g{number}")  # type: ignore[misc]
        yield lambda: engine.topics.place("here")
        yield lambda: engine.topics.subscribe(4, INBOX, "n")
        yield lambda: engine.topics.subscribe(3, "a/#", backpressure=True)
        yield lambda: engine.topics.subscribe(5, "a/#")
        yield lambda: engine.topics.subscribe(6, "a/#", backpressure=True)
        for number, name, kind in ((70, "no/a", "s"), (71, INBOX, "n"), (72, f"a/{'y' * 900}", "s")):
            data = topic(number, name, kind) + event(number, number, b"y" * 2_000)
            for start in range(0, len(data), 700):  # cut anywhere
                yield lambda piece=data[start : start + 700]: self.feed(0, piece)  # type: ignore[misc]
        sequence = 100
        for number in range(40):
            name = f"{'far' if number % 2 else 'a'}/{number}/{'x' * (number + 1)}"
            yield lambda number=number, name=name: self.feed(0, topic(number, name))  # type: ignore[misc]
            sequence += 1
            yield lambda number=number, sequence=sequence: self.feed(0, event(number, sequence, b"x" * 300))  # type: ignore[misc]
        self.hold_ns = 50
        yield lambda: engine.topics.forwarding_changed()
        for number in (1, 3, 5):
            sequence += 1
            yield lambda number=number, sequence=sequence: self.feed(0, event(number, sequence, b"held"))  # type: ignore[misc]
        yield lambda: engine.clock(1000, 1000)
        yield lambda: engine.release_held()
        for number in range(12):
            session = bytes([number]) * 16
            yield lambda number=number, session=session: self.feed(  # type: ignore[misc]
                1, encode_frame(Kind.ISSUER, Issuer(number, 1, session).encode())
            )
            yield lambda number=number: self.feed(1, route(number, f"far/{number}", b"in%d" % number))  # type: ignore[misc]
            yield lambda number=number: self.feed(1, event(number, 1, b"routed", issuer=number))  # type: ignore[misc]
        yield lambda: self.feed(1, encode_frame(Kind.PROBE, struct.pack(">QQ", 1 << 63 | 2 << 61 | 1 << 60 | 5, 0)))
        for variable in range(1, 30):
            yield lambda variable=variable: engine.status.set_variable(variable, 1, 10 + variable % 3, inputs=[0, 1])  # type: ignore[misc]
            yield lambda variable=variable: engine.status.setup_path(
                variable, 3, variable, [30 * variable], [3], 0xFFFF
            )  # type: ignore[misc]
            yield lambda variable=variable: engine.status.setup_path(variable, 4, 99, [0] * 16, [2] * 16, 0x0F0F)  # type: ignore[misc]
        yield lambda: engine.status.set_flooding(3, 2, 1)
        for created in range(10, 400, 30):
            yield lambda created=created: self.feed(0, status(*((n, created, 1.5) for n in range(1, 30))))  # type: ignore[misc]
        yield lambda: engine.send_train(2, 7, 5_000)
        yield lambda: drained(engine, 2)
        yield lambda: engine.park_port(1)
        yield lambda: engine.take_unconfirmed(2, 10)
        yield lambda: engine.resume_port(1)
        yield lambda: engine.resume_port(2)
        for place in range(7):
            yield lambda place=place: drained(engine, place)  # type: ignore[misc]
        for number in range(10, 70):
            yield lambda number=number: self._come_and_go(number)  # type: ignore[misc]

    def _come_and_go(self, number: int) -> None:
        self.engine.clock(number * 200_000_000, 1000)
        port = self.engine.open_port(issuer=number.to_bytes(16, "big"), account=f"a{number}")
        try:
            self.engine.feed(port, topic(0, f"a/come/{number}") + event(0, 1, b"x"))
        finally:
            self.engine.close_port(port)
            assert self.engine.free_port(port)
            for other in self.ports[3:]:
                drained(self.engine, other)  # what is queued keeps its numbers

    def check(self) -> None:
        """It goes on as if nothing had happened: a new publisher reaches a new subscriber, and all adds up."""
        engine = self.engine
        engine.clock(10**12, 1000)
        inward, outward = engine.open_port(issuer=b"i" * 16), engine.open_port(issuer=b"o" * 16)
        engine.topics.subscribe(outward, "later/#")
        engine.feed(inward, topic(0, "later/a") + event(0, 1, b"body"))
        assert b"body" in drained(engine, outward)
        engine.status.set_variable(500, 1, 1, inputs=[inward])
        engine.status.setup_path(500, outward, 1, [0], [3], 1)
        engine.feed(inward, status((500, 7, 2.5)))
        assert struct.pack(">d", 2.5) in drained(engine, outward)
        for port in engine.open_ports():
            counts = engine.port_counters(port)
            assert counts["bad_frames"] == 0 or self.failed
            drained(engine, port)
        for port in engine.open_ports():
            engine.close_port(port)
            while not engine.free_port(port):
                pass
        usage = engine.accounts.usage()
        assert all(row["queued_bytes"] == 0 and row["ports"] == 0 for row in usage.values())


def test_nothing_fails_without_failures() -> None:
    life = Life(0)
    assert (life.failed, life.engine.memory.refused) == (0, 0)
    assert life.engine.counters()["bad_frames"] == 0
    life.check()


@pytest.mark.timeout(600)
def test_the_engine_outlives_the_failure_of_any_allocation() -> None:
    calls = Life(0).engine.memory.calls
    assert calls > 300, "a life that takes too little memory shows nothing"
    refused = 0
    for failing in range(1, calls + 1):
        life = Life(failing)
        refused += life.engine.memory.refused
        life.check()
    assert refused > 200


def test_tables_are_as_they_were_after_any_failure() -> None:
    """Of one change that fails nothing is left: it succeeds when it is made again."""

    def subscribe(table: TopicTable) -> None:
        for number in range(60):
            table.subscribe(number % 7, f"a/{number % 5}/{number}", group="g" if number % 3 else "")
            table.route(table.number(f"a/{number % 5}/{number}"))

    expected: object = None
    for failing in range(2000):
        budget = MemoryBudget()
        table = TopicTable(budget=budget)
        budget.fail(failing)
        try:
            subscribe(table)
        except (MemoryError, ChappeError):
            subscribe(table)
        found = [table.match(f"a/{number % 5}/{number}") for number in range(60)]
        if failing == 0:
            expected = found
        assert found == expected
        if failing and not budget.refused:
            return
    raise AssertionError("the allocator was called more often than expected")


def decided_ports(engine: Engine, port: int, record: bytes, wall_ns: int) -> list[tuple[int, int]]:
    """How many records each port should have got until now, and how many its filter refused."""
    engine.clock(engine.mono_ns, wall_ns)
    engine.feed(port, encode_frame(Kind.STATUS, record))
    counts = [engine.port_counters(other) for other in engine.open_ports()]
    return [(each["status_out"] + each["drop_no_memory"], each["filtered"]) for each in counts]


def test_the_status_table_is_consistent_after_any_failure() -> None:
    def fill(table: StatusTable) -> None:
        for variable in range(1, 40):
            table.set_variable(variable, 1, 10, inputs=[1, 2] if variable % 2 else [1])
            for port in range(3, 3 + variable % 6):
                table.setup_path(variable, port, port, [10 * port], [port % 5], 0xFFFF if port % 2 else 0x00FF)
        table.set_flooding(5, 3, 1)
        table.set_level(9, 2)

    expected: object = None
    for failing in range(4000):
        engine = engine_with(10)
        table = engine.status
        engine.memory.fail(failing)
        try:
            fill(table)
        except MemoryError:
            fill(table)
        found = [table.describe(variable) for variable in range(1, 40)]
        decided = [
            decided_ports(engine, 1, struct.pack(">qIIq", created, variable, 0, 1), created)
            for variable in range(1, 40)
            for created in (10, 30, 120)
        ]
        if failing == 0:
            expected = found, decided
        assert (found, decided) == expected
        assert table.entries() == 39
        for variable in range(1, 40):
            table.drop_variable(variable)
        assert (table.entries(), table.sets()) == (0, 0)
        if failing and not engine.memory.refused:
            return
    raise AssertionError("the allocator was called more often than expected")


@pytest.mark.parametrize("limit", [1, 100_000, 300_000, 1_000_000])
def test_a_budget_that_is_too_small_refuses_and_never_crashes(limit: int) -> None:
    try:
        engine = Engine(memory_bytes=limit)
    except MemoryError:
        return
    refused = 0
    ports: list[int] = []
    for number in range(2000):
        try:
            if number % 10 == 0:
                ports.append(engine.open_port(issuer=number.to_bytes(16, "big")))
                engine.topics.subscribe(ports[-1], f"t/{number}/#")
            engine.feed(ports[0], topic(number, f"t/{number}/x") + event(number, number + 1, b"x" * 100))
        except (MemoryError, RefusedError):
            refused += 1
        assert engine.memory.bytes <= limit
    assert refused > 0
