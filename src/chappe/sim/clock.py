"""Virtual time, and randomness that comes from one printed seed.

Nothing here looks at a real clock: an hour of a quiet mesh takes as long as its events take to compute.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any

from chappe.errors import ChappeError

Call = Callable[..., None]

START_NS = 1_000_000_000  # a clock that reads 0 looks like "never" to protocol code
WALL_NS = 1_767_225_600_000_000_000  # wall clock at monotonic 0: the first second of 2026
STUCK = 100_000  # rounds in one instant after which time is said to stand still


class Timer:
    """Something that will happen; `cancel` it, or ask when."""

    __slots__ = ("arguments", "call", "when_ns")

    def __init__(self, when_ns: int, call: Call, arguments: tuple[Any, ...]) -> None:
        self.when_ns = when_ns
        self.call: Call | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        """It does not happen."""
        self.call = None
        self.arguments = ()

    @property
    def waits(self) -> bool:
        return self.call is not None


class Clock:
    """A queue of what happens when. What is due at one instant happens in the order in which it was asked for.

    After everything of an instant, `settle` runs once: whoever collects work during an instant does it there, so
    that ten messages which arrive at the same time cost one pass.
    """

    def __init__(self, settle: Callable[[], None] | None = None) -> None:
        self.now_ns = START_NS
        self.happened = 0  # events so far
        self._settle = settle or (lambda: None)
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0

    @property
    def wall_ns(self) -> int:
        return WALL_NS + self.now_ns

    @property
    def seconds(self) -> float:
        """Virtual seconds since the start."""
        return (self.now_ns - START_NS) / 1e9

    def at(self, when_ns: int, call: Call, *arguments: Any) -> Timer:
        """Call it at that time; a time that has passed means as soon as possible."""
        timer = Timer(max(when_ns, self.now_ns), call, arguments)
        self._serial += 1
        heapq.heappush(self._heap, (timer.when_ns, self._serial, timer))
        return timer

    def after(self, delay_s: float, call: Call, *arguments: Any) -> Timer:
        """Call it in so many seconds."""
        return self.at(self.now_ns + round(delay_s * 1e9), call, *arguments)

    def next_ns(self) -> int | None:
        """When something happens next."""
        while self._heap and not self._heap[0][2].waits:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_until(self, end_ns: int) -> None:
        """Let everything happen up to and at that time."""
        while (when_ns := self.next_ns()) is not None and when_ns <= end_ns:
            self.now_ns = when_ns
            rounds = 0
            while self._instant(when_ns):
                self._settle()
                rounds += 1
                if rounds > STUCK:
                    raise ChappeError(
                        f"virtual time stands still at {self.seconds:.6f} s: something answers itself at once"
                    )
        self.now_ns = max(self.now_ns, end_ns)

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        self.run_until(self.now_ns + round(seconds * 1e9))

    def _instant(self, when_ns: int) -> bool:
        """Everything that was queued for this instant before now; whether there was anything."""
        heap = self._heap
        last = self._serial
        found = False
        while heap and heap[0][0] == when_ns and heap[0][1] <= last:
            timer = heapq.heappop(heap)[2]
            call = timer.call
            if call is not None:
                timer.call = None
                found = True
                self.happened += 1
                call(*timer.arguments)
        return found


class Streams:
    """One random stream a purpose, all from one seed: a draw more for one purpose does not shift any other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, *purpose: str | int) -> random.Random:
        """The stream of that purpose, always from its start: keep it."""
        text = "\0".join(str(part) for part in (self.seed, *purpose))
        return random.Random(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big"))
