"""The engine and its slow model side by side: whatever is done to one is done to the other, and they must agree."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from chappe.engine._engine import Engine, ForwardingDecision
from chappe.errors import ProtocolError
from tests.model.engine import ECHO, ISSUER, PROBE, ROUTE, TOPIC, frame
from tests.model.mesh import MeshModel
from tests.property.engine_frames import SOURCE_ROUTES, TOPICS, WALL_NS
from tests.property.status_model import Path

SHAPES: dict[int, dict[str, Any]] = {
    0: {},
    1: {"queue_bytes": 400, "packing": 3},
    2: {"peer": True},
    3: {"conflate": True, "queue_bytes": 120},
    4: {"credit": 300},
    5: {"peer": True, "queue_bytes": 600, "max_frame": 200},
    6: {"peer": True, "retain": True},
}
CLIENTS, PEERS = [0, 1, 3, 4], [2, 5, 6]
OWN_PROBE = bytes([PROBE, 0, 0, 16])


class Twins:
    def __init__(self, layout: Any) -> None:
        self.published: dict[bytes, tuple[Any, ...] | None] = {}
        self.forwarded: dict[bytes, tuple[Any, ...] | None] = {}
        self.questions: tuple[list[Any], list[Any]] = [], []
        self.tokens: dict[int, list[int]] = {}
        denied = {b"d/b"}
        self.engine = Engine(
            layout=layout,
            authorize=lambda port, kind, topic: topic not in denied,
            plan_route=lambda kind, topic: self._answer(0, self.published.get(topic, ()), kind, topic),
            forward_route=lambda port, by, *topic: self._answer(0, self.forwarded.get(by, ()), port, by, *topic),
        )
        self.model = MeshModel(
            lambda kind, topic: self._answer(1, self.published.get(topic, ()), kind, topic),
            lambda port, by, *topic: self._answer(1, self.forwarded.get(by, ()), port, by, *topic),
        )
        self.model.denied = denied
        self.shapes: dict[int, dict[str, Any]] = {}
        self.total_opened = 0
        for shape in SHAPES.values():
            self._open(shape)
        self._settle_groups()
        self.model.wall_ns = WALL_NS
        self.engine.clock(0, WALL_NS)

    def _answer(self, who: int, answer: Any, *question: Any) -> Any:
        """What both are told; whoever knows the routes fails where an answer is None."""
        self.questions[who].append(question)
        if answer is None:
            raise ValueError("no map")
        return ForwardingDecision(*(answer or (True,)))

    def _open(self, shape: dict[str, Any]) -> None:
        issuer = bytes([self.total_opened % 256]) * 16
        self.total_opened += 1
        port = self.engine.open_port(issuer=issuer, **shape)
        self.model.open_port(port, issuer=issuer, **shape)
        self.shapes[port] = shape
        # what every port of a deployment has done before its first event
        first = [frame(TOPIC, struct.pack(">IBB", number, 115, 0) + TOPICS[number]) for number in range(4)]
        if shape.get("peer"):
            issuers = [struct.pack(">II", number, 1) + bytes([100 + port + number * 8]) * 16 for number in range(4)]
            first += [frame(ISSUER, each) for each in issuers]
            for number in range(2):
                by = SOURCE_ROUTES[number]
                first.append(frame(ROUTE, struct.pack(">IBBH", number, 115, 0, len(by)) + by + TOPICS[number]))
        self.feed(port, b"".join(first))

    def _settle_groups(self) -> None:
        """Both groups exist from the start, so that their order is settled."""
        for group in ("g", "h"):
            self.subscribe(0, "never/published", group)

    # --- input

    def feed(self, port: int, data: bytes) -> None:
        failed_before = self.model.ports[port].failed
        self.model.feed(port, data)
        if self.model.ports[port].failed and not failed_before:
            with pytest.raises(ProtocolError):
                self.engine.feed(port, data)
        else:
            self.engine.feed(port, data)

    def feed_cut(self, port: int, data: bytes, cuts: list[int]) -> None:
        edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        for start, end in itertools.pairwise(edges):
            self.feed(port, data[start:end])

    def feed_damaged(self, port: int, data: bytes, place: int, value: int) -> None:
        place %= len(data)
        self.feed(port, data[:place] + bytes([value]) + data[place + 1 :])

    def confirm(self, port: int) -> None:
        """The other engine echoes the probes that were written."""
        for token in self.tokens.pop(port, []):
            self.feed(port, frame(ECHO, struct.pack(">Qq", token, 5)))

    # --- tables

    def subscribe(self, port: int, pattern: str, group: str) -> None:
        self.engine.topics.subscribe(port, *_kind(pattern), group=group)
        self.model.subscriptions[(port, pattern, group)] = None

    def unsubscribe(self, port: int, pattern: str, group: str) -> None:
        self.engine.topics.unsubscribe(port, *_kind(pattern), group=group)
        self.model.subscriptions.pop((port, pattern, group), None)

    def set_variable(self, variable: int, rate: tuple[int, int], inputs: list[int]) -> None:
        self.engine.status.set_variable(variable, *rate, inputs)
        self.model.status.set_variable(variable, *rate, inputs)

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

    def terminate_path(self, variable: int, path: int) -> None:
        known = self.model.status.variables.get(variable)
        if known is not None:
            self.engine.status.terminate_path(variable, path)
            known.paths.pop(path, None)

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

    def set_level(self, port: int, level: int) -> None:
        self.engine.status.set_level(port, level)
        self.model.status.levels[port] = level

    def switch_mode(self, mode: int) -> None:
        self.engine.status.slot = self.model.status.slot = mode

    def forwarding_changed(self) -> None:
        self.engine.topics.forwarding_changed()
        self.model.generation += 1

    # --- time

    def time_passes(self, step: int) -> None:
        self.model.mono_ns += step
        self.engine.clock(self.model.mono_ns, WALL_NS)
        assert self.engine.held_ns() == self.model.held_ns()

    def release_held(self) -> None:
        assert self.engine.release_held() == self.model.release_held()

    # --- output

    def write_all(self, port: int) -> None:
        while self.write_some(port, 1):
            pass

    def write_some(self, port: int, share: float) -> bool:
        """That share of what the port shows; False if it shows nothing."""
        shown = bytes(self.engine.peek(port))
        assert shown == self.model.peek(port, shown)
        count = int(len(shown) * share)
        if shown:
            self.engine.consumed(port, count)
            self.model.consumed(port, count)
        place = shown.find(OWN_PROBE)
        while 0 <= place < count:
            token = int.from_bytes(shown[place + 4 : place + 12], "big")
            if token >> 63:
                self.tokens.setdefault(port, []).append(token)
            place = shown.find(OWN_PROBE, place + 1)
        return bool(shown)

    def send_train(self, port: int, token: int, size: int) -> None:
        assert self.engine.send_train(port, token, size) == self.model.send_train(port, token, size)

    # --- connections

    def park(self, port: int) -> None:
        self.engine.park_port(port)
        self.model.park_port(port)
        self.tokens.pop(port, None)

    def resume(self, port: int) -> None:
        self.engine.resume_port(port)
        shown = bytes(self.engine.peek(port))
        self.model.resume_port(port, shown)
        assert shown == self.model.peek(port, shown)

    def lose(self, port: int, limit: int, next_hops: list[tuple[int, bytes]]) -> None:
        taken, expected = self.engine.take_unconfirmed(port, limit), self.model.take_unconfirmed(port, limit)
        assert [(*item[:6], item.frame[8:]) for item in taken] == expected
        for item, same in zip(taken, expected, strict=True):
            assert self.engine.reroute(item, next_hops) == self.model.reroute(same, next_hops)
        self.tokens.pop(port, None)

    def replace(self, port: int, first: bool) -> None:
        if first:
            self.write_all(port)
        self.engine.close_port(port)
        self.model.close_port(port)
        self.check()
        while not self.engine.free_port(port, 2):
            pass
        self.model.subscriptions = {s: None for s in self.model.subscriptions if s[0] != port}
        self.model.status.remove_port(port)
        self.model.free_port(port)
        self.tokens.pop(port, None)
        self._open(self.shapes[port])
        if port == 0:
            self._settle_groups()

    # --- agreement

    def check(self) -> None:
        for port, p in self.model.ports.items():
            counts = self.engine.port_counters(port)
            lost = [counts.pop("lost_status"), counts.pop("lost_events")]
            assert {name: count for name, count in counts.items() if count} == dict(+p.counts), f"port {port}"
            assert lost == p.lost
        asked, expected = self.questions
        assert asked == expected, "questions about routes"
        asked.clear()
        expected.clear()

    def finish(self) -> None:
        for port in self.model.ports:
            self.write_all(port)
        self.check()
        taken = [(port, bytes(payload)) for port, payload in self.engine.take_control()]
        assert taken == self.model.control
        assert [(port, token) for port, token, _, _ in self.engine.take_echoes()] == self.model.echoes
        assert self.engine.take_trained() == self.model.trained
        drops = {(kind, address, reason): count for kind, address, reason, count in self.engine.address_drops()}
        assert drops == dict(self.model.address_drops)
        sums = sum((p.counts for p in self.model.ports.values()), self.model.past.copy())
        assert {name: count for name, count in self.engine.counters().items() if count} == dict(+sums)


def _kind(pattern: str) -> tuple[str, str]:
    """Text and kind of a pattern; `n:` marks addresses."""
    return (pattern[2:], "n") if pattern.startswith("n:") else (pattern, "s")
