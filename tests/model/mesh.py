"""The slow engine in a mesh: ways, events that wait or are rescued, trains, and connections that come back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.model.engine import ECHO, EVENT, PROBE, ROUTE, STATUS, TRAIN, TRAINED, EngineModel, frame
from tests.model.queues import CLASS, ISSUER, PARCEL, TOPIC, Bad, Course, Key, Port, Queue, Waiting

Answer = tuple[bool, list[tuple[int, bytes]], int, tuple[str, ...] | None]
RESENT = 0x20


class MeshModel(EngineModel):
    def __init__(
        self, publish: Callable[[str, bytes], Answer], forward: Callable[[int, bytes, str, bytes], Answer]
    ) -> None:
        super().__init__()
        self.publish, self.forward = publish, forward
        self.published: dict[tuple[int, bytes], Course] = {}
        self.holding: list[Course] = []
        self.tokens = 0
        self.trained: list[tuple[int, ...]] = []

    # --- ports

    def close_port(self, port: int) -> None:
        self.generation += self.ports[port].peer
        super().close_port(port)

    def free_port(self, port: int) -> None:
        self.past += self.ports.pop(port).counts

    def park_port(self, port: int) -> None:
        p = self.ports[port]
        if p.open and not p.parked:
            p.parked = True
            p.unread = b""
            p.train_in, p.train_out = [], []

    def resume_port(self, port: int, learn: bytes) -> None:
        """`learn` is what the engine shows next: it chooses the order in which definitions are sent again."""
        p = self.ports[port]
        p.parked = p.failed = False
        p.unread, p.sticky = b"", None
        old, p.queues = p.queues, [Queue() for _ in range(4)]
        left, p.topics_out = set(p.topics_out), set()
        while learn and learn[0] in (TOPIC, ROUTE):
            size = 4 + int.from_bytes(learn[1:4], "big")
            key = next(key for key in left if self._definition(key)[8:] == learn[8:size])
            assert self.numbers.get(key) in (None, 0, int.from_bytes(learn[4:8], "big"))
            left.remove(key)
            p.topics_out.add(key)
            self._put(p, 0, self._definition(key), bounded=False, key=key)
            learn = learn[size:]
        events = [item for queue in old for item in queue.kept + queue.frames if item.data[0] == EVENT]
        assert {item.key for item in events} <= p.topics_out, "a definition is missing"
        p.issuers_out = {int.from_bytes(item.data[9:12], "big") for item in events}
        for issuer in sorted(p.issuers_out):
            self._put(p, 0, self._issuer_frame(issuer), bounded=False)
        for queue, fresh in zip(old, p.queues, strict=True):
            for item in queue.kept + queue.frames:
                data, kind = item.data, item.data[0]
                if kind in (EVENT, PARCEL):
                    if item.start < queue.sent:
                        p.counts["resent"] += 1
                        data = data[:8] + bytes([data[8] | RESENT]) + data[9:] if kind == EVENT else data
                    fresh.append(Waiting(data, key=item.key))
                    fresh.keep = fresh.enqueued
                elif kind == STATUS and item.end > queue.sent:
                    fresh.append(Waiting(data))

    # --- input

    def feed(self, port: int, data: bytes) -> None:
        p = self.ports[port]
        whole = not p.unread
        frames = p.counts["frames_in"]
        super().feed(port, data)
        begun = not p.failed and p.unread and p.unread[0] == TRAIN and (whole or p.counts["frames_in"] > frames)
        if begun and p.train_in and p.train_in[4] == self.mono_ns:
            p.train_in[5] = min(p.train_in[2] + len(p.unread), p.train_in[1])

    def _frame(self, port: int, p: Port, kind: int, payload: bytes) -> None:
        if kind == ROUTE:
            self._route(p, payload)
        elif kind == TRAIN:
            self._train(p, payload)
        elif kind == TRAINED:
            if not p.peer or len(payload) != 40:
                raise Bad
            self.trained.append((port, *struct.unpack(">QQQqq", payload)))
        else:
            super()._frame(port, p, kind, payload)

    def _route(self, p: Port, payload: bytes) -> None:
        if not p.peer or len(payload) < 10:
            raise Bad
        number, kind, zero, size = struct.unpack(">IBBH", payload[:8])
        way, name = payload[8 : 8 + size], payload[8 + size :]
        if number >= 65536 or zero or not way or not name:
            raise Bad
        self._check_topic(kind, name)
        if name in self.denied:
            p.courses.pop(number, None)
            p.topics_in[number] = None
            return
        course = p.courses.get(number)
        if course is None or (course.topic, course.way) != ((kind, name), way):
            p.courses[number] = Course((kind, name), way)
        p.topics_in[number] = (kind, name)

    def _train(self, p: Port, payload: bytes) -> None:
        length = 4 + len(payload)
        if not p.peer or len(payload) < 16:
            raise Bad
        token, size, offset = struct.unpack(">QII", payload[:16])
        if not 40 <= size <= 1 << 26 or offset + length > size:
            raise Bad
        if offset == 0:
            p.train_in = [token, size, 0, self.mono_ns, self.mono_ns, 0]
        if p.train_in[:3] != [token, size, offset]:
            p.train_in = []
            return
        if offset * 2 < size or p.train_in[4] == self.mono_ns:
            p.train_in[4:] = [self.mono_ns, offset + length]
        p.train_in[2] += length
        if p.train_in[2] == size:
            *_, first, half, after = p.train_in
            p.train_in = []
            p.counts["trains_in"] += 1
            answer = struct.pack(">QQQqq", token, size - after, self.mono_ns - half, first, self.mono_ns)
            if not self._put(p, 0, frame(TRAINED, answer)):
                p.counts["drop_queue_full"] += 1

    def _delivers(self, port: int, p: Port, number: int) -> bool:
        course = p.courses.get(number)
        if course is None:
            return True
        if course.asked != self.generation:
            self._ask(port, p.counts, course)
        return course.local

    def _deliver(
        self, port: int, p: Port, number: int, topic: tuple[int, bytes], issuer: int, payload: bytes, again: bool
    ) -> None:
        course = p.courses.get(number)
        if course is None:
            if p.peer:
                super()._deliver(port, p, number, topic, issuer, payload, again)
                return
            course = self.published.setdefault(topic, Course(topic, b""))
            if course.asked != self.generation:
                self._ask(-1, p.counts, course)
        wanted = False
        if course.local and not again:
            without = {target for target, _ in course.branches}
            wanted = self._local(port, p, topic, issuer, payload, without, course.groups)
        if course.missing and not again:
            p.counts["drop_no_way"] += course.missing
            self.address_drops[("topic", self._key_name((*topic, "")), "drop_no_way")] += course.missing
        elif not wanted and not course.branches and not again:
            p.counts["unrouted"] += 1
        if course.branches and not self._keep_back(p, course, issuer, payload):
            self._send(course, CLASS[payload[4] & 7], issuer, payload)

    # --- ways

    def _ask(self, port: int, counts: Any, course: Course) -> None:
        course.asked = self.generation
        kind, name = chr(course.topic[0]), course.topic[1]
        try:
            said = self.publish(kind, name) if port < 0 else self.forward(port, course.way, kind, name)
            course.local, branches, hold, groups = said
            course.missing = not course.local and not branches
        except ValueError:
            counts["way_errors"] += 1
            course.local, branches, hold, groups, course.missing = port < 0, [], 0, None, True
        course.groups = None if groups is None else frozenset(groups)
        course.branches = []
        for target, way in branches:
            if target == port or not self._usable(target) or not way:
                course.missing += 1
                continue
            if self._define(self.ports[target], (*course.topic, way)):
                course.branches.append((target, way))
            else:
                course.missing += 1
        if hold and port < 0:
            course.hold_until = max(course.hold_until, self.mono_ns + hold)

    def _usable(self, port: int) -> bool:
        return port in self.ports and self.ports[port].open and self.ports[port].peer

    def _send(self, course: Course, cls: int, issuer: int, payload: bytes) -> None:
        for target, way in course.branches:
            key: Key = (*course.topic, way)
            self.ports[target].counts["routed_out"] += self._copy(target, cls, key, issuer, payload)

    # --- events that wait

    def _keep_back(self, p: Port, course: Course, issuer: int, payload: bytes) -> bool:
        if course.hold_until == 0:
            return False
        if self.mono_ns >= course.hold_until:
            course.hold_until = 0
            self._send_held(course)
            return False
        if not course.held:
            self.holding.append(course)
        course.held.append((CLASS[payload[4] & 7], issuer, payload))
        p.counts["held"] += 1
        return True

    def _send_held(self, course: Course) -> None:
        if not course.held:
            return
        if not course.branches:
            reason = "drop_no_way" if course.missing else "unrouted"
            self.past[reason] += len(course.held)
            if course.missing:
                self.address_drops[("topic", self._key_name((*course.topic, "")), reason)] += len(course.held)
        for item in course.held:
            self._send(course, *item)
        course.held = []
        place = self.holding.index(course)
        last = self.holding.pop()
        if last is not course:
            self.holding[place] = last

    def release_held(self) -> int:
        released = place = 0
        while place < len(self.holding):
            course = self.holding[place]
            if course.hold_until <= self.mono_ns and course.asked != self.generation:
                self._ask(-1, self.past, course)
            if course.hold_until > self.mono_ns:
                place += 1
                continue
            released += len(course.held)
            self._send_held(course)
            course.hold_until = 0
        return released

    def held_ns(self) -> int:
        return max(0, min(course.hold_until for course in self.holding) - self.mono_ns) if self.holding else -1

    # --- rescue

    def rescue(self, port: int, limit: int) -> list[tuple[bytes, int, int, str, bytes, bytes, bytes]]:
        """As the engine's, the frames without their topic numbers."""
        p = self.ports[port]
        self.park_port(port)
        found: list[tuple[bytes, int, int, str, bytes, bytes, bytes]] = []
        for queue in p.queues if p.open and p.peer else []:
            for item in (queue.kept if p.retain else []) + queue.frames:
                if item.data[0] != EVENT or item.key is None or not isinstance(item.key[2], bytes):
                    continue
                if len(found) == limit:
                    return found
                session, epoch = self.issuers[int.from_bytes(item.data[9:12], "big")]
                sequence = int.from_bytes(item.data[12:16], "big")
                kind, name, way = item.key
                assert isinstance(way, bytes)
                found.append((session, epoch, sequence, chr(kind), name, way, item.data[8:]))
                item.data = b"\0" + item.data[1:]
                p.counts["rescued"] += 1
        return found

    def redirect(self, rescued: tuple[Any, ...], branches: list[tuple[int, bytes]]) -> int:
        session, epoch, _, kind, name, _, rest = rescued
        issuer = self._issuer(session, epoch)
        payload = b"????" + bytes([rest[0] | RESENT]) + rest[1:]
        queued = 0
        for target, way in branches:
            if not self._usable(target) or not way:
                self.past["drop_no_way"] += 1
                continue
            done = self._copy(target, CLASS[payload[4] & 7], (ord(kind), name, way), issuer, payload)
            self.ports[target].counts["routed_out"] += done
            queued += done
        return queued

    # --- output

    def send_train(self, port: int, token: int, size: int) -> bool:
        p = self.ports[port]
        if not p.open or p.parked or p.train_out:
            return False
        p.train_out = [token, size, 0]
        return True

    def _own_frames(self, p: Port) -> None:
        for cls, queue in enumerate(p.queues):
            if p.retain and not queue.token and queue.keep > queue.released:
                self.tokens += 1
                queue.token = 1 << 63 | cls << 61 | 1 << 60 | self.tokens
                self._put(p, cls, frame(PROBE, struct.pack(">Qq", queue.token, self.mono_ns)), bounded=False)
                queue.probed = queue.enqueued
        if p.train_out and not any(queue.frames for queue in p.queues):
            token, size, done = p.train_out
            piece = min(16384, max(256, size // 8), size - done)
            if 0 < size - done - piece < 20:
                piece = size - done - 20
            self._put(p, 3, frame(TRAIN, struct.pack(">QII", token, size, done) + bytes(piece - 20)), bounded=False)
            p.train_out[2] += piece
            if p.train_out[2] == size:
                p.train_out = []
                p.counts["trains_out"] += 1


__all__ = ["ECHO", "ISSUER", "TRAIN", "MeshModel"]
