"""Eight ports with mixed intervals: every event that a router forwarded or dropped, held against the rule.

The rule is written here a second time, over arrays: an event passes an interval of m periods iff
`floor((created * num + den / 2) / den) mod m == 0`.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench._subscribe import Subscriber
from bench.engine_load import RECORD
from bench.peers.common import Running
from bench.protocols import status
from bench.protocols.common import Link
from bench.shared import END, Shared
from chappe.errors import ChappeError

PORTS = 8
EVERY = (1, 2, 3, 5, 10, 30)
RECORDS_A_FRAME = 1000
WAIT_S = 30.0
NUM, DEN = status.RATE_NUM, status.RATE_DEN
Array = npt.NDArray[np.int64]


@dataclass
class Outcome:
    """What became of every event on every port."""

    judged: int = 0
    forwarded: int = 0
    wrongly_forwarded: int = 0
    wrongly_dropped: int = 0


def check(broker: Running, variables: int, rounds: int) -> Outcome:
    """Publish `rounds` events of each variable to eight ports and compare with the rule."""
    address = ("127.0.0.1", broker.port)
    shared = Shared(PORTS)
    links: list[Link] = []
    thread: threading.Thread | None = None
    try:
        publisher = status.connect(address, None)
        links.append(publisher)
        numbers = np.array(status.register(publisher, variables), np.int64)
        every = np.array([[EVERY[(i + i // 7 + port) % len(EVERY)] for i in range(variables)] for port in range(PORTS)])
        watchers = [_watcher(address, every[port]) for port in range(PORTS)]
        links += watchers
        fds = [link.sock.fileno() for link in watchers]
        heads = [link.head for link in watchers]
        receiver = Subscriber("status", fds, 1, 24, shared.words, 0, heads, variables * rounds * 24)
        thread = threading.Thread(target=receiver.run)
        thread.start()
        created = _created(variables, rounds)
        passes = (_round(created)[None] % every[:, :, None]) == 0
        _publish(publisher, numbers, created, passes, shared)
        shared.phase = END
        thread.join()
        outcome = Outcome()
        for port in range(PORTS):
            _judge(outcome, receiver.captured(port), numbers, created, passes[port])
        return outcome
    finally:
        shared.phase = END
        if thread is not None:
            thread.join()
        for link in links:
            link.sock.close()


def _watcher(address: tuple[str, int], every: Array) -> Link:
    """A connection that watches all variables; the node must have understood each interval as so many periods."""
    link = status.connect(address, None)
    intervals = [0 if periods == 1 else -(-int(periods) * DEN // NUM) for periods in every]
    answers = status.watch(link, intervals)
    understood = np.array([answer.every for answer in answers])
    if not np.array_equal(understood, every):
        at = int(np.argmax(understood != every))
        asked = f"an interval of {intervals[at]} ns at 30/s is {every[at]} periods"
        raise ChappeError(f"{asked}; the node says {understood[at]}")
    link.sock.setblocking(False)
    return link


def _created(variables: int, rounds: int) -> Array:
    """Time stamps (variable, round) near their ideal place, at random up to 0.45 of a period away."""
    period = DEN / NUM
    base = (time.time_ns() - int((rounds + 30) * period)) // 1_000_000_000 * 1_000_000_000
    ideal = base + (np.arange(rounds, dtype=np.int64) * DEN // NUM)
    noise = np.random.default_rng(30).integers(int(-0.45 * period), int(0.45 * period), (variables, rounds))
    return np.asarray(ideal[None] + noise, np.int64)


def _round(created: Array) -> Array:
    """Exact in 64 bits: whole seconds and the rest are taken apart before they are multiplied."""
    seconds, rest = np.divmod(created, DEN)
    return np.asarray(seconds * NUM + (rest * NUM + DEN // 2) // DEN, np.int64)


def _publish(link: Link, numbers: Array, created: Array, passes: npt.NDArray[np.bool_], shared: Shared) -> None:
    """Round after round; the next chunk leaves when every port has what it shall get of the one before."""
    due = np.zeros(PORTS, np.int64)
    records = np.zeros(len(numbers), RECORD)
    records["variable"] = numbers
    for k in range(created.shape[1]):
        records["created"] = created[:, k]
        records["value"] = k
        for at in range(0, len(numbers), RECORDS_A_FRAME * 16):
            stop = min(len(numbers), at + RECORDS_A_FRAME * 16)
            parts = [records[i : min(stop, i + RECORDS_A_FRAME)].tobytes() for i in range(at, stop, RECORDS_A_FRAME)]
            link.sock.sendall(b"".join(b"\x01" + len(part).to_bytes(3, "big") + part for part in parts))
            due += passes[:, at:stop, k].sum(axis=1)
            _await(shared, due)
    time.sleep(0.2)  # what was forwarded against the rule arrives, too


def _await(shared: Shared, due: Array) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(shared.received(port) < due[port] for port in range(PORTS)):
        if shared.faulty or time.monotonic() > deadline:
            return  # the judgement names what is missing
        time.sleep(0.0005)


def _judge(outcome: Outcome, captured: bytes, numbers: Array, created: Array, passes: npt.NDArray[np.bool_]) -> None:
    got = np.frombuffer(captured, RECORD)
    order = np.argsort(numbers)
    at = order[np.clip(np.searchsorted(numbers, got["variable"], sorter=order), 0, len(numbers) - 1)]
    k = got["value"].astype(np.int64)
    known = (numbers[at] == got["variable"]) & (k >= 0) & (k < created.shape[1])
    known[known] &= created[at[known], k[known]] == got["created"][known]
    times = np.zeros(passes.shape, np.int64)
    np.add.at(times, (at[known], k[known]), 1)
    outcome.judged += passes.size
    outcome.forwarded += len(got)
    outcome.wrongly_forwarded += int((~known).sum() + np.maximum(times - passes, 0).sum())
    outcome.wrongly_dropped += int((passes & (times == 0)).sum())
