"""Random walks over an engine and its model, most steps being traffic."""

from __future__ import annotations

import random
import struct
from typing import Any

from tests.model.engine import CONTROL, ECHO, ISSUER, PROBE, ROUTE, STATUS, TOPIC, TRAIN, TRAINED, frame
from tests.model.queues import PARCEL
from tests.property.engine_frames import (
    ADDRESSES,
    ID,
    SOURCE_ROUTES,
    TOPICS,
    VARIABLES,
    WALL_NS,
    event,
    extension,
    record,
)
from tests.property.twins import CLIENTS, PEERS, Twins

PATTERNS = ["a", "a/#", "+/b", "#", "a/+/c", "d", "d/b", "+", "n:a/b", f"n:a/b@{ID}", f"n:d@{ID}", "n:b@", "n:@"]
KEYS = [(115, topic) for topic in TOPICS] + [(110, address.encode()) for address in ADDRESSES]


def _frame(pick: random.Random, peer: bool, sequence: int) -> bytes:
    number = pick.randrange(4)
    kind = pick.randrange(100)
    if kind < 60:
        ext = extension(pick.randrange(2), WALL_NS + pick.choice([-1, 1])) if pick.random() < 0.1 else b""
        if pick.random() < 0.2:
            sequence = max(1, sequence - pick.randrange(1, 9))  # late, or a repeat
        return event(number, number, sequence, pick.randrange(7), ext, bytes(pick.randrange(20)))
    if kind < 75:
        stamps = [
            sequence * 10 + pick.randrange(-9, 9) * 10
            if pick.random() < 0.95
            else pick.choice([WALL_NS + 7 * 10**10, -(10**9)])
            for _ in "abc"
        ]
        return frame(STATUS, b"".join(record(pick.choice(VARIABLES), stamp, pick.randrange(2)) for stamp in stamps))
    if kind < 79:
        of, topic = pick.choice([*KEYS, (115, b"d/b")])
        return frame(TOPIC, struct.pack(">IBB", number, of, 0) + topic)
    if kind < 82:
        return frame(pick.choice([PROBE, ECHO]), struct.pack(">QQ", pick.randrange(9), 5))
    if kind < 84:
        return frame(pick.choice([CONTROL, PARCEL]), b"text")
    if not peer:
        return event(number, 0, sequence, 3, b"", b"own")
    if kind < 88:
        return frame(ISSUER, struct.pack(">II", number, 1) + bytes([pick.randrange(100, 140)]) * 16)
    if kind < 96:
        source_route = pick.choice(SOURCE_ROUTES)
        of, topic = pick.choice(KEYS)
        return frame(ROUTE, struct.pack(">IBBH", number, of, 0, len(source_route)) + source_route + topic)
    if kind < 97:
        return frame(TRAINED, struct.pack(">QQQqq", number, 1, 2, -3, 4))
    cut = pick.choice([40, 60])
    first = frame(TRAIN, struct.pack(">QII", number, 100, 0) + bytes(cut - 20))
    return first + frame(TRAIN, struct.pack(">QII", number, 100, cut) + bytes(100 - cut - 20))


def _next_hops(pick: random.Random) -> list[tuple[int, bytes]]:
    # one next hop a port: runs of two source routes to one port would be mixed otherwise than single events
    return [(port, pick.choice(SOURCE_ROUTES)) for port in pick.sample([*PEERS, 0, 9], pick.randrange(4))]


def _answer(pick: random.Random) -> Any:
    if pick.random() < 0.1:
        return None
    groups = pick.choice([None, None, (), ("g",), ("g", "h")])
    return pick.random() < 0.7, _next_hops(pick), pick.choice([0, 0, 10**7]), groups


def _change(twins: Twins, pick: random.Random) -> None:
    port, variable = pick.randrange(7), pick.choice(VARIABLES)
    action = pick.randrange(12)
    if action < 3:
        twins.subscribe(port, pick.choice(PATTERNS), pick.choice(["", "", "g", "h"]))
    elif action == 3:
        twins.unsubscribe(port, pick.choice(PATTERNS), pick.choice(["", "g", "h"]))
    elif action == 4:
        twins.set_variable(variable, pick.choice([(1, 10), (3, 100), (0, 1)]), [*CLIENTS, *PEERS][: pick.randrange(8)])
    elif action == 5:
        for path in range(3):
            interval, priority = pick.choice([0, 0, 10, 30]), pick.randrange(7)
            twins.setup_path(pick.randrange(7), variable, path, interval, priority, pick.choice([0xFFFF, 1]), path == 0)
    elif action == 6:
        twins.flood(variable, 1, 0xFFFF, pick.random() < 0.5)
    elif action == 7:
        twins.set_level(port, pick.randrange(2))
    elif action == 8:
        twins.switch_mode(pick.randrange(2))
    else:
        twins.published[pick.choice(TOPICS)] = _answer(pick)
        twins.forwarded[pick.choice(SOURCE_ROUTES)] = _answer(pick)
        if pick.random() < 0.8:
            twins.forwarding_changed()


def walk(twins: Twins, pick: random.Random, steps: int) -> None:
    """That many steps; every part of the state is compared after each."""
    sequence = 0
    for variable in VARIABLES:
        twins.set_variable(variable, (1, 10), [*CLIENTS, *PEERS])
        for path in range(3):
            twins.setup_path(pick.randrange(7), variable, path, path * 10, 2 * path, 0xFFFF, False)
    for _ in range(steps):
        port = pick.randrange(7)
        kind = pick.randrange(100)
        if kind < 45:
            stream = b""
            for _ in range(pick.randrange(1, 10)):
                sequence += 1
                stream += _frame(pick, port in PEERS, sequence)
            twins.feed_cut(port, stream, [pick.randrange(300) for _ in range(pick.randrange(3))])
        elif kind < 47:
            twins.feed_damaged(port, _frame(pick, port in PEERS, sequence), pick.randrange(40), pick.randrange(256))
        elif kind < 62:
            _change(twins, pick)
        elif kind < 70:
            twins.time_passes(pick.choice([1, 10**6, 10**7, 10**8]))
            twins.release_held()
        elif kind < 84:
            twins.write_all(port)
            twins.confirm(port)
        elif kind < 90:
            twins.write_some(port, pick.random())
        elif kind < 92:
            twins.send_train(pick.choice(PEERS), pick.randrange(9), pick.choice([40, 276, 500]))
        elif kind < 94:
            twins.park(port)
        elif kind < 97:
            twins.resume(port)
        elif kind < 98:
            twins.lose(pick.choice(PEERS), pick.randrange(1, 4), _next_hops(pick))
        else:
            twins.replace(port, pick.random() < 0.5)
        if twins.model.ports[port].failed:
            twins.replace(port, False)
        twins.check()
    twins.finish()
