"""For any table changes, mode switches and input cut at any byte, the engine gives what the slow model gives."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chappe.engine._engine import Engine
from chappe.errors import ProtocolError
from tests.model.engine import CONTROL, ECHO, EVENT, ISSUER, PROBE, STATUS, TOPIC, EngineModel, frame
from tests.property.status_model import Path

WALL_NS = 10_000_000_000
SHAPES: dict[int, dict[str, Any]] = {
    0: {},
    1: {"queue_bytes": 400, "packing": 3},
    2: {"peer": True},
    3: {"conflate": True, "queue_bytes": 120},
    4: {"credit": 300},
    5: {"peer": True, "queue_bytes": 600, "max_frame": 200},
}

ports = st.integers(0, 5)
variables = st.sampled_from([1, 2, (5 << 22) | 3])
stamps = st.one_of(st.integers(-30, 60).map(lambda step: step * 10), st.just(WALL_NS + 10**10))
topics = st.sampled_from(["a", "a/b", "a/b/c", "d", "d/b"])
patterns = st.sampled_from(["a", "a/#", "+/b", "#", "a/+/c", "d", "d/b", "+"])
numbers = st.integers(0, 3)


def record(variable: int, created: int, options: int) -> bytes:
    return struct.pack(">qIB3xd", created, variable, options, 1.5) + b"o" * (24 * options)


records = st.builds(record, variables, stamps, st.sampled_from([0, 0, 0, 1, 2]))
status_frames = st.lists(records, min_size=1, max_size=5).map(lambda found: frame(STATUS, b"".join(found)))
topic_frames = st.builds(
    lambda number, topic: frame(TOPIC, struct.pack(">IBB", number, ord("s"), 0) + topic.encode()), numbers, topics
)
typed_frames = st.builds(
    lambda number, key: frame(TOPIC, struct.pack(">IBB", number, ord("i"), 0) + struct.pack(">i", key)),
    numbers,
    st.sampled_from([7, -7]),
)
issuer_frames = st.builds(
    lambda number, who: frame(ISSUER, struct.pack(">II", number, 1) + bytes([who]) * 16), numbers, st.integers(0, 8)
)


def extension(kind: int, expires: int) -> bytes:
    item = struct.pack(">BHq", 2, 8, expires) if kind == 0 else struct.pack(">BH", 5, 4) + b"text"
    return struct.pack(">H", len(item)) + item


def event(number: int, issuer: int, sequence: int, priority: int, ext: bytes, body: bytes) -> bytes:
    flags = priority | (8 if ext else 0)
    return frame(EVENT, struct.pack(">IIII", number, flags << 24 | issuer, sequence, 0)[:12] + ext + body)


extensions = st.one_of(
    st.just(b""), st.just(b""), st.builds(extension, st.integers(0, 1), st.sampled_from([WALL_NS - 1, WALL_NS + 1]))
)
events = st.builds(event, numbers, numbers, st.integers(1, 40), st.integers(0, 6), extensions, st.binary(max_size=20))
others = st.one_of(
    st.builds(lambda token: frame(PROBE, struct.pack(">QQ", token, 5)), st.integers(0, 9)),
    st.builds(lambda token: frame(ECHO, struct.pack(">QQ", token, 5)), st.integers(0, 9)),
    st.binary(max_size=8).map(lambda text: frame(CONTROL, text)),
)
good_frames = st.one_of(status_frames, topic_frames, typed_frames, issuer_frames, events, events, events, others)
input_bytes = st.lists(good_frames, min_size=1, max_size=8).map(b"".join)


class EngineAgrees(RuleBasedStateMachine):
    layout = "sparse"

    @initialize()
    def start(self) -> None:
        self.denied = {b"d/b"}
        self.engine = Engine(layout=self.layout, authorize=lambda port, kind, topic: topic not in self.denied)  # type: ignore[arg-type]
        self.model = EngineModel()
        self.model.denied = self.denied
        self.shapes: dict[int, dict[str, Any]] = {}
        self.total_opened = 0
        for shape in SHAPES.values():
            self._open(shape)
        # both groups exist from the start, so that their order is settled
        for group in ("g", "h"):
            self.engine.topics.subscribe(0, "never/published", group=group)
            self.model.subscriptions[(0, "never/published", group)] = None
        self.model.wall_ns = WALL_NS
        self.engine.clock(0, WALL_NS)

    def _open(self, shape: dict[str, Any]) -> None:
        session = bytes([self.total_opened]) * 16
        self.total_opened += 1
        port = self.engine.open_port(session=session, **shape)
        self.model.open_port(port, session=session, **shape)
        self.shapes[port] = shape
        if shape.get("peer"):
            # the setting that every peer of a deployment has: define one issuer so that events can flow
            first = frame(ISSUER, struct.pack(">II", 0, 1) + bytes([200 + port]) * 16)
            self._feed(port, first)

    def _feed(self, port: int, data: bytes) -> None:
        failed_before = self.model.ports[port].failed
        self.model.feed(port, data)
        if self.model.ports[port].failed and not failed_before:
            with pytest.raises(ProtocolError):
                self.engine.feed(port, data)
        else:
            self.engine.feed(port, data)

    @rule(port=ports, data=input_bytes, cuts=st.lists(st.integers(0, 400), max_size=4))
    def feed(self, port: int, data: bytes, cuts: list[int]) -> None:
        edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        for start, end in itertools.pairwise(edges):
            self._feed(port, data[start:end])

    @rule(port=ports, data=input_bytes, place=st.integers(0, 300), value=st.integers(0, 255))
    def feed_damaged(self, port: int, data: bytes, place: int, value: int) -> None:
        place %= len(data)
        damaged = data[:place] + bytes([value]) + data[place + 1 :]
        self._feed(port, damaged)

    @rule(port=ports, pattern=patterns, group=st.sampled_from(["", "", "g", "h"]))
    def subscribe(self, port: int, pattern: str, group: str) -> None:
        self.engine.topics.subscribe(port, pattern, group=group)
        self.model.subscriptions[(port, pattern, group)] = None

    @rule(port=ports, pattern=patterns, group=st.sampled_from(["", "g", "h"]))
    def unsubscribe(self, port: int, pattern: str, group: str) -> None:
        self.engine.topics.unsubscribe(port, pattern, group=group)
        self.model.subscriptions.pop((port, pattern, group), None)

    @rule(variable=variables, rate=st.sampled_from([(1, 10), (3, 100), (0, 1)]), inputs=st.lists(ports, max_size=3))
    def set_variable(self, variable: int, rate: tuple[int, int], inputs: list[int]) -> None:
        self.engine.status.set_variable(variable, *rate, inputs)
        self.model.status.set_variable(variable, *rate, inputs)

    @rule(
        port=ports,
        variable=variables,
        path=st.integers(0, 3),
        interval=st.sampled_from([0, 10, 20, 30, 60]),
        priority=st.integers(0, 6),
        modes=st.sampled_from([0xFFFF, 1, 2, 3]),
        present=st.booleans(),
    )
    def setup_path(
        self, port: int, variable: int, path: int, interval: int, priority: int, modes: int, present: bool
    ) -> None:
        known = self.model.status.variables.get(variable)
        if known is None:
            return
        known.paths[path] = Path(port, [interval], [priority], modes)
        if present:
            self.engine.watch(port, variable, path, [interval], [priority], modes)
            self.model.watch(port, variable)
        else:
            self.engine.status.setup_path(variable, port, path, [interval], [priority], modes)

    @rule(variable=variables, path=st.integers(0, 3))
    def terminate_path(self, variable: int, path: int) -> None:
        known = self.model.status.variables.get(variable)
        if known is not None:
            self.engine.status.terminate_path(variable, path)
            known.paths.pop(path, None)

    @rule(variable=variables, level=st.integers(1, 2), modes=st.sampled_from([1, 0xFFFF]), on=st.booleans())
    def flood(self, variable: int, level: int, modes: int, on: bool) -> None:
        known = self.model.status.variables.get(variable)
        if known is None:
            return
        if on:
            self.engine.status.set_flooding(variable, level, modes)
        else:
            self.engine.status.clear_flooding(variable, modes)
        known.levels = [(level if on else 0) if modes >> mode & 1 else old for mode, old in enumerate(known.levels)]
        known.renew_window()

    @rule(port=ports, level=st.integers(0, 2))
    def set_level(self, port: int, level: int) -> None:
        self.engine.status.set_level(port, level)
        self.model.status.levels[port] = level

    @rule(mode=st.integers(0, 2))
    def switch_mode(self, mode: int) -> None:
        self.engine.status.slot = self.model.status.slot = mode

    @rule(step=st.sampled_from([1, 10**7, 10**8]))
    def time_passes(self, step: int) -> None:
        self.model.mono_ns += step
        self.engine.clock(self.model.mono_ns, WALL_NS)

    @rule(port=ports)
    def write_all(self, port: int) -> None:
        for _ in range(100):
            shown = bytes(self.engine.peek(port))
            assert shown == self.model.peek(port, shown)
            if not shown:
                break
            self.engine.consumed(port, len(shown))
            self.model.consumed(port, len(shown))

    @rule(port=ports, share=st.floats(0, 1))
    def write_some(self, port: int, share: float) -> None:
        shown = bytes(self.engine.peek(port))
        assert shown == self.model.peek(port, shown)
        if shown:
            count = int(len(shown) * share)
            self.engine.consumed(port, count)
            self.model.consumed(port, count)

    @rule(port=ports)
    def replace(self, port: int) -> None:
        self.write_all(port)
        self.engine.close_port(port)
        self.model.close_port(port)
        self.same_counters()
        while not self.engine.free_port(port, 2):
            pass
        self.model.subscriptions = {s: None for s in self.model.subscriptions if s[0] != port}
        self.model.status.remove_port(port)
        shape = self.shapes[port]
        del self.model.ports[port]
        self._open(shape)
        if port == 0:
            for group in ("g", "h"):
                self.engine.topics.subscribe(0, "never/published", group=group)
                self.model.subscriptions[(0, "never/published", group)] = None

    @invariant()
    def same_counters(self) -> None:
        if not hasattr(self, "engine"):
            return
        for port, p in self.model.ports.items():
            counts = self.engine.port_counters(port)
            lost = [counts.pop("lost_status"), counts.pop("lost_events")]
            assert {name: count for name, count in counts.items() if count} == dict(+p.counts), f"port {port}"
            assert lost == p.lost

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for port in self.model.ports:
            self.write_all(port)
        self.same_counters()
        taken = [(port, bytes(payload)) for port, payload in self.engine.take_control()]
        assert taken == self.model.control
        assert [(port, token) for port, token, _, _ in self.engine.take_echoes()] == self.model.echoes
        drops = {(kind, address, reason): count for kind, address, reason, count in self.engine.address_drops()}
        assert drops == dict(self.model.address_drops)


class EngineAgreesClose(EngineAgrees):
    layout = "close"


EngineAgrees.TestCase.settings = EngineAgreesClose.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestSparse = pytest.mark.spec("GS-066")(EngineAgrees.TestCase)
TestClose = pytest.mark.spec("GS-065")(EngineAgreesClose.TestCase)
