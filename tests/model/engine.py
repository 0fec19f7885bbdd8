"""The engine once more, slow and obvious: one message at a time, Python lists, no runs, no caches.

`docs/reference/engine.md` says what both must do. Segments are left out: keep what waits in a class below 32 KiB.
"""

from __future__ import annotations

import re
import struct
from collections import Counter

from tests.model.queues import (
    CLASS,
    CONTROL,
    CREDIT,
    DENIAL,
    ECHO,
    EVENT,
    ISSUER,
    KINDS,
    LOSS,
    PARCEL,
    PROBE,
    ROUTE,
    STATUS,
    TOPIC,
    TRAIN,
    TRAINED,
    WINDOW,
    Bad,
    Key,
    Port,
    Queue,
    Waiting,
    frame,
    records,
)  # fmt: skip
from tests.model.routes import Subscription, resolve
from tests.property.status_model import Model as StatusModel

__all__ = [
    "CONTROL", "CREDIT", "DENIAL", "ECHO", "EVENT", "ISSUER", "LOSS", "PROBE", "ROUTE", "STATUS", "TOPIC", "TRAIN",
    "TRAINED", "EngineModel", "frame",
]  # fmt: skip


ADDRESS = re.compile(r"[^@+#\0]+(?:@(?:confirm:)?[0-9a-f]{32})?")


class EngineModel:
    def __init__(self) -> None:
        self.status = StatusModel()
        self.ports: dict[int, Port] = {}
        self.subscriptions: dict[tuple[int, str, str], None] = {}  # (port, pattern, group)
        self.cursors: Counter[str] = Counter()
        self.issuers: list[tuple[bytes, int]] = [(b"", 0)]
        self.seen: dict[int, set[int]] = {}
        self.last: dict[int, int] = {}
        self.through_peer: set[int] = set()
        self.numbers: dict[Key, int] = {}
        self.past: Counter[str] = Counter()  # of ports that are gone, and of no port
        self.control: list[tuple[int, bytes]] = []
        self.echoes: list[tuple[int, int]] = []
        self.address_drops: Counter[tuple[str, int | str, str]] = Counter()
        self.denied: set[bytes] = set()
        self.generation = 1  # of answers of where events go
        self.wall_ns = 0
        self.mono_ns = 0

    # --- ports

    def open_port(
        self,
        port: int,
        *,
        peer: bool = False,
        queue_bytes: int = 4 << 20,
        max_frame: int = 1 << 20,
        packing: int = 0,
        conflate: bool = False,
        credit: int = 0,
        retain: bool = False,
        issuer: bytes = b"",
    ) -> None:
        number = 0 if peer else self._issuer(issuer, 1)
        self.ports[port] = Port(peer, queue_bytes, max_frame, packing, conflate, credit, number, retain, granted=credit)

    def close_port(self, port: int) -> None:
        p = self.ports[port]
        for queue in p.queues:
            for item in queue.frames:
                if item.data[0] == EVENT:
                    assert item.key is not None
                    self._lose(p, 1, "topic", self._key_name(item.key), "drop_closed")
                elif item.data[0] == STATUS:
                    for record in records(item.data[4:]):
                        self._lose(p, 0, "variable", int.from_bytes(record[8:12], "big"), "drop_closed")
        for variable in p.newest:
            self._lose(p, 0, "variable", variable, "drop_closed")
        p.newest.clear()
        p.queues = [Queue() for _ in range(4)]
        p.open = p.parked = False
        p.sticky = None
        self.status.levels.pop(port, None)

    def _issuer(self, issuer: bytes, epoch: int) -> int:
        if (issuer, epoch) not in self.issuers:
            self.issuers.append((issuer, epoch))
        return self.issuers.index((issuer, epoch))

    # --- input

    def feed(self, port: int, data: bytes) -> None:
        p = self.ports[port]
        if p.failed or not p.open or p.parked:
            return
        p.counts["bytes_in"] += len(data)
        p.unread += data
        for other in self.ports.values():
            if other.starved and (not other.open or self._room(other, 0, other.limit // 2)):
                other.starved = False
                self.generation += other.peer
        try:
            while p.unread:
                if p.unread[0] not in KINDS:
                    raise Bad
                if len(p.unread) < 4:
                    break
                length = int.from_bytes(p.unread[1:4], "big")
                if length > p.max_frame:
                    raise Bad
                if len(p.unread) < 4 + length:
                    break
                kind, payload = p.unread[0], p.unread[4 : 4 + length]
                p.unread = p.unread[4 + length :]
                p.counts["frames_in"] += 1
                self._frame(port, p, kind, payload)
        except Bad:
            p.failed = True
            p.counts["bad_frames"] += 1
            return
        used = p.granted - p.event_bytes  # credit left
        if p.credit and used <= p.credit // 2:
            self._grant(p)

    def _grant(self, p: Port) -> None:
        if self._put(p, 0, frame(CREDIT, struct.pack(">Q", p.event_bytes + p.credit))):
            p.granted = p.event_bytes + p.credit

    def _frame(self, port: int, p: Port, kind: int, payload: bytes) -> None:
        if kind == EVENT:
            self._event(port, p, payload)
        elif kind == STATUS:
            found = records(payload)
            p.counts["status_in"] += len(found)
            for record in found:
                self._record(port, p, record)
        elif kind == TOPIC:
            self._topic(p, payload)
        elif kind == ISSUER:
            if not p.peer or len(payload) != 24 or int.from_bytes(payload[:4], "big") >= 1 << 20:
                raise Bad
            number, epoch = struct.unpack(">II", payload[:8])
            p.issuers_in[number] = self._issuer(payload[8:], epoch)
        elif kind == PROBE:
            if not 16 <= len(payload) <= 1400:
                raise Bad
            p.counts["probes_in"] += 1
            if p.refused != p.refused_told:
                p.refused_told = p.refused
                self._put(p, 0, frame(DENIAL, struct.pack(">QQ", p.refused, 0)), bounded=False)
            if not self._put(p, 0, frame(ECHO, payload)):
                p.counts["drop_queue_full"] += 1
        elif kind == ECHO:
            if len(payload) < 16:
                raise Bad
            token = int.from_bytes(payload[:8], "big")
            queue = p.queues[token >> 61 & 3]
            if token >> 63 and queue.token == token:
                queue.token = 0
                queue.release(queue.sent if queue.keep <= queue.probed else queue.probed)
            elif token and not token >> 63:
                self.echoes.append((port, token))
        elif kind == CONTROL:
            p.counts["control_in"] += 1
            self.control.append((port, payload))
        elif kind == PARCEL:
            p.counts["parcels_in"] += 1
            p.counts["unrouted"] += 1
        else:
            raise Bad

    def _topic(self, p: Port, payload: bytes) -> None:
        if len(payload) < 7 or payload[5] or int.from_bytes(payload[:4], "big") >= 65536:
            raise Bad
        kind, name = payload[4], payload[6:]
        self._check_topic(kind, name)
        allowed = name not in self.denied
        number = int.from_bytes(payload[:4], "big")
        p.topics_in[number] = (kind, name) if allowed else None
        p.entries.pop(number, None)

    def _check_topic(self, kind: int, name: bytes) -> None:
        if kind == ord("s"):
            try:
                text = name.decode()
            except UnicodeDecodeError:
                raise Bad from None
            levels = text.split("/")
            if len(name) > 1024 or "" in levels or len(levels) > 64 or any(c in text for c in "+#\0"):
                raise Bad
        elif kind == ord("n"):
            try:
                text = name.decode()
            except UnicodeDecodeError:
                raise Bad from None
            levels = text.partition("@")[0].split("/")
            if len(name) > 1024 or "" in levels or len(levels) > 64 or not ADDRESS.fullmatch(text):
                raise Bad
        elif not (kind == ord("i") and len(name) == 4) and not (kind == ord("l") and len(name) == 8):
            raise Bad

    def _event(self, port: int, p: Port, payload: bytes) -> None:
        p.counts["events_in"] += 1
        p.event_bytes += 4 + len(payload)
        if len(payload) < 12:
            raise Bad
        number, flags, sequence = struct.unpack(">IB3xI", payload[:12])
        if number not in p.topics_in:
            raise Bad
        topic = p.topics_in[number]
        if flags & 0xC0 or flags & 7 == 7:
            raise Bad
        issuer = p.issuer
        if p.peer:
            said = int.from_bytes(payload[5:8], "big")
            if said not in p.issuers_in:
                raise Bad
            issuer = p.issuers_in[said]
        expired = self._expired(payload[12:]) if flags & 8 else False
        name = self._key_name((*topic, "")) if topic else ""
        routed = number in p.entries
        p.counts["routed_in"] += routed
        if topic is None:
            p.refused += not p.peer  # a neighbour is not told: its publisher is a client of another node
            self._drop(p, "topic", "", "drop_not_permitted")
            return
        again = self._delivers(port, p, number) and self._repeated(issuer, sequence, p.peer)
        if again:
            self._drop(p, "topic", name, "drop_duplicate")
        if expired:
            if not again:
                self._drop(p, "topic", name, "drop_expired")
        elif routed or not again:
            self._deliver(port, p, number, topic, issuer, payload, again)

    def _delivers(self, port: int, p: Port, number: int) -> bool:
        """Whether subscribers of this node get events of that number: then repeats are recognised."""
        return True

    def _expired(self, body: bytes) -> bool:
        if len(body) < 2 or len(body) < 2 + int.from_bytes(body[:2], "big"):
            raise Bad
        items, expired = body[2 : 2 + int.from_bytes(body[:2], "big")], False
        while items:
            if len(items) < 3 or len(items) < 3 + int.from_bytes(items[1:3], "big"):
                raise Bad
            value = items[3 : 3 + int.from_bytes(items[1:3], "big")]
            if items[0] == 2:
                if len(value) != 8:
                    raise Bad
                expired = expired or int.from_bytes(value, "big", signed=True) < self.wall_ns
            items = items[3 + len(value) :]
        return expired

    def _repeated(self, issuer: int, sequence: int, peer: bool) -> bool:
        last = self.last.get(issuer)
        # sequences are compared as 32 bits that wrap around
        ahead = 1 if last is None else (sequence - last + (1 << 31)) % (1 << 32) - (1 << 31)
        if not peer and issuer not in self.through_peer:
            if ahead <= 0:
                return True
            self.last[issuer] = sequence
            return False
        if issuer not in self.through_peer:
            self.through_peer.add(issuer)
            self.seen[issuer] = set() if last is None else {(last - back) % (1 << 32) for back in range(WINDOW)}
        seen = self.seen[issuer]
        if ahead <= -WINDOW or (ahead <= 0 and sequence in seen):
            return True
        if ahead > 0 and last is not None:
            seen -= {(last + step) % (1 << 32) for step in range(1, min(ahead, WINDOW))}
        seen.add(sequence)
        if ahead > 0:
            self.last[issuer] = sequence
        return False

    def _leads_to(self, address: str) -> str:
        """The pattern that an address matches: itself, the name of its node, or all others."""
        name = address.partition("@")[0].split("/")[-1]
        held = {pattern for _, pattern, _ in self.subscriptions}
        return next((each for each in (f"n:{address}", f"n:{name}@", "n:@") if each in held), "")

    def _matches(self, pattern: str, topic: tuple[int, bytes]) -> bool:
        if topic[0] == ord("n"):
            return pattern == self._leads_to(topic[1].decode())
        if topic[0] != ord("s"):
            return pattern == f"{chr(topic[0])}:{int.from_bytes(topic[1], 'big', signed=True)}"
        wanted, levels = pattern.split("/"), topic[1].decode().split("/")
        for place, want in enumerate(wanted):
            if want == "#":
                return True
            if place >= len(levels) or want not in ("+", levels[place]):
                return False
        return len(wanted) == len(levels) or (len(wanted) == len(levels) + 1 and wanted[-1] == "#")

    def _deliver(
        self, port: int, p: Port, number: int, topic: tuple[int, bytes], issuer: int, payload: bytes, again: bool
    ) -> None:
        if not self._local(port, p, topic, issuer, payload, set(), None):
            p.counts["unrouted"] += 1

    def _local(
        self, port: int, p: Port, topic: tuple[int, bytes], issuer: int, payload: bytes,
        without: set[int], chosen: frozenset[str] | None,
    ) -> bool:  # fmt: skip
        """Copies for the subscribers; False if there is none."""
        cls = CLASS[payload[4] & 7]
        route = resolve((Subscription(*each) for each in self.subscriptions), lambda each: self._matches(each, topic))
        plain = route.receivers(())
        key = (*topic, "")
        self.numbers.setdefault(key, 0)
        for target in plain:
            self._define(self.ports[target], key)
        for target in plain:
            if target in without or (target == port and p.peer):
                continue
            self._copy(target, cls, key, issuer, payload)
        for group, order in route.groups:
            if chosen is not None and group not in chosen:
                continue
            turn = self.cursors[group]
            for step in range(len(order)):
                target = order[(turn + step) % len(order)]
                q = self.ports[target]
                open_ = q.open and not q.parked
                if open_ and not (target == port and p.peer) and self._room(q, cls, 4 + len(payload)):
                    break
            self.cursors[group] = turn + step + 1
            self._copy(target, cls, (*topic, group), issuer, payload)
        return bool(plain or route.groups)

    def _define(self, q: Port, key: Key) -> bool:
        """A number is defined within the bound of class 0; where that has no room no event may follow."""
        if key not in q.topics_out:
            definition = self._definition(key)
            if q.open and not self._room(q, 0, len(definition)):
                q.starved = True
                return False
            q.topics_out.add(key)
            self._put(q, 0, definition, bounded=False, key=key)
        return True

    def _definition(self, key: Key) -> bytes:
        kind, name, of = key
        if isinstance(of, bytes):
            return frame(ROUTE, struct.pack(">4sBBH", b"????", kind, 0, len(of)) + of + name)
        return frame(TOPIC, b"????" + bytes([kind, len(of.encode())]) + of.encode() + name)

    def _copy(self, target: int, cls: int, key: Key, issuer: int, payload: bytes) -> bool:
        q = self.ports[target]
        self._define(q, key)
        if not q.open:
            self._lose(q, 1, "topic", self._key_name(key), "drop_closed")
            return False
        if issuer not in q.issuers_out:
            if self._room(q, 0, 28):
                q.issuers_out.add(issuer)
                self._put(q, 0, self._issuer_frame(issuer))
            else:
                q.starved = True
        if q.starved:
            self._lose(q, 1, "topic", self._key_name(key), "drop_queue_full")
            return False
        copy = b"????" + payload[4:5] + issuer.to_bytes(3, "big") + payload[8:]
        done = self._put(q, cls, frame(EVENT, copy), key=key)
        if done:
            q.counts["events_out"] += 1
        else:
            self._lose(q, 1, "topic", self._key_name(key), "drop_queue_full")
        q.queues[cls].keep = q.queues[cls].enqueued
        return done

    def _issuer_frame(self, issuer: int) -> bytes:
        session, epoch = self.issuers[issuer]
        return frame(ISSUER, struct.pack(">II", issuer, epoch) + session)

    def _record(self, port: int, p: Port, record: bytes) -> None:
        created, variable = struct.unpack(">qI", record[:12])
        verdict, passed, failed = self.status.decide(port, variable, created, self.wall_ns, record)
        if verdict not in ("FORWARD", "FLOODED"):
            self._drop(p, "variable", variable, "drop_" + verdict.lower())
            return
        if not passed and not failed:
            p.counts["unrouted"] += 1
        for target, cls in passed:
            if target != port:
                self._put_record(self.ports[target], cls, variable, record)
        for target, _ in failed:
            if target != port:
                self.ports[target].counts["filtered"] += 1

    def watch(self, port: int, variable: int) -> None:
        last = self.status.variables[variable].last
        if last is not None:
            self._put_record(self.ports[port], 2, variable, last)

    def _put_record(self, q: Port, cls: int, variable: int, record: bytes) -> None:
        if not q.open or q.parked:
            self._lose(q, 0, "variable", variable, "drop_closed")
        elif q.conflate and cls:
            waiting = sum(32 + len(kept) for other, kept in q.newest.items() if other != variable)
            if waiting + 32 + len(record) > q.limit:
                self._lose(q, 0, "variable", variable, "drop_queue_full")
                return
            q.counts["conflated"] += variable in q.newest
            q.newest[variable] = record
        elif self._room(q, cls, len(record) + 4):
            self._append_record(q, cls, record)
        else:
            self._lose(q, 0, "variable", variable, "drop_queue_full")

    def _append_record(self, q: Port, cls: int, record: bytes) -> None:
        q.counts["status_out"] += 1
        queue = q.queues[cls]
        frames = queue.frames
        if frames and frames[-1].grows:
            inside = frames[-1].data[4:]
            fits = q.packing == 0 or len(records(inside)) < q.packing
            if fits and 4 + len(inside) + len(record) <= 16384:
                frames[-1].data = frame(STATUS, inside + record)
                queue.enqueued += len(record)
                return
        queue.append(Waiting(frame(STATUS, record), grows=True))

    # --- queues

    def _room(self, q: Port, cls: int, size: int) -> bool:
        return q.queues[cls].size() + size <= q.limit

    def _put(self, q: Port, cls: int, data: bytes, bounded: bool = True, key: Key | None = None) -> bool:
        if not q.open or (bounded and not self._room(q, cls, len(data))):
            return False
        if q.queues[cls].frames:
            q.queues[cls].frames[-1].grows = False
        q.queues[cls].append(Waiting(data, key=key))
        return True

    def _drop(self, p: Port, kind: str, address: int | str, reason: str) -> None:
        p.counts[reason] += 1
        self.address_drops[(kind, address, reason)] += 1

    def _lose(self, p: Port, what: int, kind: str, address: int | str, reason: str) -> None:
        self._drop(p, kind, address, reason)
        p.lost[what] += 1

    def _key_name(self, key: Key) -> int | str:
        if key[0] == ord("n"):
            return key[1].decode().partition("@")[0] + "@…" * (b"@" in key[1])
        return key[1].decode() if key[0] == ord("s") else int.from_bytes(key[1], "big", signed=True)

    # --- output

    def peek(self, port: int, learn: bytes) -> bytes:
        """The next contiguous bytes; `learn` is what the engine shows, from which the model takes topic numbers."""
        p = self.ports[port]
        if not p.open or p.parked:
            return b""
        if not p.peer and sum(p.lost) != p.told and (p.told == 0 or self.mono_ns - p.told_at >= 100_000_000):
            self._put(p, 0, frame(LOSS, struct.pack(">QQ", *p.lost)), bounded=False)
            p.told, p.told_at = sum(p.lost), self.mono_ns
        if p.newest and not p.queues[2].frames:
            for record in p.newest.values():
                self._append_record(p, 2, record)
            p.newest.clear()
        self._own_frames(p)
        for queue in p.queues:
            queue.planned = 0
        if p.sticky:
            cls, size = p.sticky
        else:
            waiting = [cls for cls in range(4) if p.queues[cls].frames]
            if not waiting:
                return b""
            cls, size = waiting[0], p.queues[waiting[0]].enqueued - p.queues[waiting[0]].sent
        queue = p.queues[cls]
        for item in queue.frames if not p.sticky else []:  # what came after a write began is not listed yet
            item.grows = False
        self._number(queue, learn)
        queue.planned = size
        return b"".join(item.data for item in queue.frames)[queue.written :][:size]

    def _own_frames(self, p: Port) -> None:
        """What a port adds when it is written, besides losses and the newest records."""

    def _number(self, queue: Queue, learn: bytes) -> None:
        """Which number stands for a topic is the engine's choice: take it from its TOPIC frames, then insist on it."""
        place = -queue.written
        for item in queue.frames:
            key = item.key
            if key is not None and item.data[4:8] == b"????":
                if item.data[0] in (TOPIC, ROUTE) and place >= 0 and place + 8 <= len(learn):
                    number = int.from_bytes(learn[place + 4 : place + 8], "big")
                    assert number, "topic number 0"
                    known = self.numbers.get(key, 0)
                    assert known in (0, number), "one topic, two numbers"
                    others = {n for k, n in self.numbers.items() if k != key and n}
                    assert number not in others, "two topics, one number"
                    self.numbers[key] = number
                if self.numbers.get(key):
                    item.data = item.data[:4] + self.numbers[key].to_bytes(4, "big") + item.data[8:]
            place += len(item.data)

    def consumed(self, port: int, count: int) -> None:
        p = self.ports[port]
        p.counts["bytes_out"] += count
        cls = next((cls for cls in range(4) if p.queues[cls].planned), None)
        if cls is None:
            return
        queue = p.queues[cls]
        left = queue.planned - count
        queue.wrote(count, p.retain)
        p.sticky = (cls, left) if left and (count or p.sticky) else None
        queue.planned = 0
        if count and p.credit and p.granted - p.event_bytes <= p.credit // 2:
            self._grant(p)
