"""Long work of a node in slices: forwarding waits for none of them longer than a twentieth of a millisecond.

A slice takes SLICE_NS. On a node that forwards next to nothing another one follows after a rest as long; on one that
forwards, the slices together take 0.4 % of the time, so that no percentile up to the 99th shows them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns

import structlog

log = structlog.get_logger(__name__)

SLICE_NS = 50_000
REST_BUSY = 249  # times the length of the slice
REST_IDLE = 1
BUSY_BYTES = 100_000  # of data a second, from which on forwarding goes before everything else
WINDOW_NS = 20_000_000  # in which data are counted, at least
HOLD_NS = 1_000_000_000  # that a node counts as one that forwards after the last data
MOST = 64  # jobs of one identity that wait: more are refused

Job = Iterator[object]  # does a small piece of work with each step


class Pacer:
    """Says how long to rest after a slice; `data_bytes()` is how many bytes of data arrived, ever."""

    def __init__(self, data_bytes: Callable[[], int]) -> None:
        self._data_bytes = data_bytes
        self._since_ns = perf_counter_ns()
        self._before = data_bytes()
        self._until_ns = 0

    @property
    def busy(self) -> bool:
        """Whether the node forwards data."""
        now_ns = perf_counter_ns()
        passed_ns = now_ns - self._since_ns
        if passed_ns >= WINDOW_NS:
            data = self._data_bytes()
            if (data - self._before) * 1e9 > BUSY_BYTES * passed_ns:
                self._until_ns = now_ns + HOLD_NS
            self._since_ns, self._before = now_ns, data
        return now_ns < self._until_ns

    def rest_s(self, took_ns: int) -> float:
        """Seconds until the next slice, after one that took so long."""
        return took_ns * (REST_BUSY if self.busy else REST_IDLE) / 1e9


def run_slice(job: Job) -> tuple[int, bool]:
    """Steps of a job for SLICE_NS; how long they took, and whether it is over."""
    began_ns = perf_counter_ns()
    until_ns = began_ns + SLICE_NS
    for _ in job:
        now_ns = perf_counter_ns()
        if now_ns >= until_ns:
            return now_ns - began_ns, False
    return perf_counter_ns() - began_ns, True


async def in_slices(job: Job, data_bytes: Callable[[], int]) -> None:
    """Do all of a job, in slices."""
    pacer = Pacer(data_bytes)
    while True:
        took_ns, over = run_slice(job)
        if over:
            return
        await asyncio.sleep(pacer.rest_s(took_ns))


class Background:
    """Jobs of clients: identities in turn, and the jobs of one identity in turn.

    `failed(port)` is called for a job that raised: a defect of ours, which is logged.
    """

    def __init__(self, data_bytes: Callable[[], int], failed: Callable[[int], None]) -> None:
        self._data_bytes = data_bytes
        self._failed = failed
        self._jobs: dict[str, deque[tuple[int, Job]]] = {}
        self._turn: deque[str] = deque()  # whose job is next
        self._timer: asyncio.Handle | None = None
        self._pacer: Pacer | None = None

    def add(self, identity: str, port: int, job: Job, bounded: bool = True) -> bool:
        """Do it soon; False if `bounded` and that identity has too many waiting already."""
        waiting = self._jobs.get(identity)
        if waiting is None:
            waiting = self._jobs[identity] = deque()
            self._turn.append(identity)
        elif bounded and len(waiting) >= MOST:
            return False
        waiting.append((port, job))
        if self._timer is None:
            self._pacer = self._pacer or Pacer(self._data_bytes)
            self._timer = asyncio.get_running_loop().call_soon(self._step)
        return True

    def rest_s(self, took_ns: int) -> float:
        """How long to rest after work that took so long and was done elsewhere."""
        self._pacer = self._pacer or Pacer(self._data_bytes)
        return self._pacer.rest_s(took_ns)

    def forget(self, identity: str, port: int) -> None:
        """That connection is over, and with it what it asked for."""
        waiting = self._jobs.get(identity)
        if waiting is not None:
            kept = [item for item in waiting if item[0] != port]
            waiting.clear()
            waiting.extend(kept)

    def stop(self) -> None:
        """Do nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._jobs.clear()
        self._turn.clear()

    def _step(self) -> None:
        self._timer = None
        while self._turn:
            identity = self._turn.popleft()
            waiting = self._jobs[identity]
            if not waiting:
                del self._jobs[identity]
                continue
            port, job = waiting[0]
            took_ns, over = self._run(port, job)
            if waiting and waiting[0][1] is job:  # it was not forgotten meanwhile
                waiting.rotate(-1)
                if over:
                    waiting.pop()
            self._turn.append(identity)
            assert self._pacer is not None
            self._timer = asyncio.get_running_loop().call_later(self._pacer.rest_s(took_ns), self._step)
            return

    def _run(self, port: int, job: Job) -> tuple[int, bool]:
        try:
            return run_slice(job)
        except Exception:
            log.exception("a request could not be handled", port=port)
            self._failed(port)
            return 0, True
