"""The slow engine in a mesh: source routes, events that wait or are rerouted, trains, connections that come back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from chappe.engine.routes import ForwardingDecision
from tests.model.engine import ECHO, EVENT, PROBE, ROUTE, STATUS, TRAIN, TRAINED, EngineModel, frame
from tests.model.queues import CLASS, ISSUER, TOPIC, Bad, ForwardingEntry, Key, Port, Queue, Waiting

RESENT = 0x20


class MeshModel(EngineModel):
    def __init__(
        self,
        publish: Callable[[str, bytes], ForwardingDecision],
        forward: Callable[[int, bytes, str, bytes], ForwardingDecision],
    ) -> None:
        super().__init__()
        self.publish, self.forward = publish, forward
        self.published: dict[tuple[int, bytes], ForwardingEntry] = {}
        self.holding: list[ForwardingEntry] = []
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
                if kind == EVENT:
                    if item.start < queue.sent:
                        p.counts["resent"] += 1
                        data = data[:8] + bytes([data[8] | RESENT]) + data[9:]
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
        source_route, name = payload[8 : 8 + size], payload[8 + size :]
        if number >= 65536 or zero or not source_route or not name:
            raise Bad
        self._check_topic(kind, name)
        if name in self.denied:
            p.entries.pop(number, None)
            p.topics_in[number] = None
            return
        entry = p.entries.get(number)
        if entry is None or (entry.topic, entry.source_route) != ((kind, name), source_route):
            p.entries[number] = ForwardingEntry((kind, name), source_route)
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
        entry = p.entries.get(number)
        if entry is None:
            return True
        if entry.asked != self.generation:
            self._ask(port, p.counts, entry)
        return entry.deliver_here

    def _deliver(
        self, port: int, p: Port, number: int, topic: tuple[int, bytes], issuer: int, payload: bytes, again: bool
    ) -> None:
        entry = p.entries.get(number)
        if entry is None:
            if p.peer:
                super()._deliver(port, p, number, topic, issuer, payload, again)
                return
            entry = self.published.setdefault(topic, ForwardingEntry(topic, b""))
            if entry.asked != self.generation:
                self._ask(-1, p.counts, entry)
        wanted = False
        if entry.deliver_here and not again:
            without = {target for target, _ in entry.next_hops}
            wanted = self._local(port, p, topic, issuer, payload, without, entry.groups)
        if entry.unusable and not again:
            p.counts["drop_no_route"] += entry.unusable
            self.address_drops[("topic", self._key_name((*topic, "")), "drop_no_route")] += entry.unusable
        elif not wanted and not entry.next_hops and not again:
            p.counts["unrouted"] += 1
        if entry.next_hops and not self._keep_back(p, entry, issuer, payload):
            self._send(entry, CLASS[payload[4] & 7], issuer, payload)

    # --- forwarding

    def _ask(self, port: int, counts: Any, entry: ForwardingEntry) -> None:
        entry.asked = self.generation
        kind, name = chr(entry.topic[0]), entry.topic[1]
        try:
            said = self.publish(kind, name) if port < 0 else self.forward(port, entry.source_route, kind, name)
            entry.deliver_here, next_hops, hold, groups = said[:4]
            entry.unusable = not entry.deliver_here and not next_hops
        except ValueError:
            counts["route_errors"] += 1
            entry.deliver_here, next_hops, hold, groups, entry.unusable = port < 0, [], 0, None, True
        entry.groups = None if groups is None else frozenset(groups)
        entry.next_hops = []
        for target, source_route in next_hops:
            if target == port or not self._usable(target) or not source_route:
                entry.unusable += 1
                continue
            if self._define(self.ports[target], (*entry.topic, source_route)):
                entry.next_hops.append((target, source_route))
            else:
                entry.unusable += 1
        if hold and port < 0:
            entry.hold_until = max(entry.hold_until, self.mono_ns + hold)

    def _usable(self, port: int) -> bool:
        return port in self.ports and self.ports[port].open and self.ports[port].peer

    def _send(self, entry: ForwardingEntry, cls: int, issuer: int, payload: bytes) -> None:
        for target, source_route in entry.next_hops:
            key: Key = (*entry.topic, source_route)
            self.ports[target].counts["routed_out"] += self._copy(target, cls, key, issuer, payload)

    # --- events that wait

    def _keep_back(self, p: Port, entry: ForwardingEntry, issuer: int, payload: bytes) -> bool:
        if entry.hold_until == 0:
            return False
        if self.mono_ns >= entry.hold_until:
            entry.hold_until = 0
            self._send_held(entry)
            return False
        if not entry.held:
            self.holding.append(entry)
        entry.held.append((CLASS[payload[4] & 7], issuer, payload))
        p.counts["held"] += 1
        return True

    def _send_held(self, entry: ForwardingEntry) -> None:
        if not entry.held:
            return
        if not entry.next_hops:
            reason = "drop_no_route" if entry.unusable else "unrouted"
            self.past[reason] += len(entry.held)
            if entry.unusable:
                self.address_drops[("topic", self._key_name((*entry.topic, "")), reason)] += len(entry.held)
        for item in entry.held:
            self._send(entry, *item)
        entry.held = []
        place = self.holding.index(entry)
        last = self.holding.pop()
        if last is not entry:
            self.holding[place] = last

    def release_held(self) -> int:
        released = place = 0
        while place < len(self.holding):
            entry = self.holding[place]
            if entry.hold_until <= self.mono_ns and entry.asked != self.generation:
                self._ask(-1, self.past, entry)
            if entry.hold_until > self.mono_ns:
                place += 1
                continue
            released += len(entry.held)
            self._send_held(entry)
            entry.hold_until = 0
        return released

    def held_ns(self) -> int:
        return max(0, min(entry.hold_until for entry in self.holding) - self.mono_ns) if self.holding else -1

    # --- events of lost neighbours

    def take_unconfirmed(self, port: int, limit: int) -> list[tuple[bytes, int, int, str, bytes, bytes, bytes]]:
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
                kind, name, source_route = item.key
                assert isinstance(source_route, bytes)
                found.append((session, epoch, sequence, chr(kind), name, source_route, item.data[8:]))
                item.data = b"\0" + item.data[1:]
                p.counts["rerouted"] += 1
        return found

    def reroute(self, event: tuple[Any, ...], next_hops: list[tuple[int, bytes]]) -> int:
        session, epoch, _, kind, name, _, rest = event
        issuer = self._issuer(session, epoch)
        payload = b"????" + bytes([rest[0] | RESENT]) + rest[1:]
        queued = 0
        for target, source_route in next_hops:
            if not self._usable(target) or not source_route:
                self.past["drop_no_route"] += 1
                continue
            done = self._copy(target, CLASS[payload[4] & 7], (ord(kind), name, source_route), issuer, payload)
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
