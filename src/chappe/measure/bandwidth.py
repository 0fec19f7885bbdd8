"""Available bandwidth of a link by trains of bytes whose arrival the other end stamps (MR-136).

A link is a pipe of some length (its delay) and cross-section (its bandwidth). Bytes sent in one go leave it at the rate
of its narrowest place, so how long the second half of a train takes to arrive says what the link can carry towards its
other end, whatever the way back is like and without clocks that agree. The first half is not used: it may have met
empty queues and full token buckets.

The size of a train is searched for: trains start at a kilobyte and grow until their second half takes milliseconds;
then each next train is as long as the estimate asks for, within a factor of four, so that a sudden change is followed,
and longer while measurements differ. Trains may use a share of what is known of the link, collected in a bucket.

TCP that was idle sends a few segments and waits a round trip for leave to send twice as many. Such a pause looks like a
slow link. A second half that took about a round trip is therefore not believed: while TCP is still warm half as many
bytes follow at once, and they count.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from dataclasses import dataclass

from chappe.measure.probes import NEVER
from chappe.measure.readings import SECOND

MILLISECOND = 1_000_000
SEGMENT = 1448  # bytes that arrive at once, and so say nothing about the time between them


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a link's bandwidth is measured."""

    share: float = 0.015  # of what is known of the link that trains may use: below 2 % even if that is a fifth too much
    first_bytes: int = 1024
    least_bytes: int = 11_000  # about eight segments: fewer are too coarse, and so many are collected for at any rate
    window_bytes: int = 11_000  # what TCP sends without waiting: ten packets, and a train is written in eight or nine
    most_bytes: int = 3_000_000
    bucket_bytes: int = 64_000  # a train of this size is not deceived by the token buckets that are usual
    assumed: float = 125_000.0  # bytes/s of a link of which nothing is known: 1 Mbit/s
    short_ns: int = 3 * MILLISECOND  # a second half below this says only that the link is faster
    aim_ns: int = 10 * MILLISECOND  # what a second half should take
    longer: float = 4.0  # how many times longer it may become while measurements differ
    collect_ns: int = 5 * SECOND  # how long may be collected for a train
    noise_ns: int = MILLISECOND  # what a stamp may be wrong by
    old: float = 0.7  # weight of the old estimate against the median of recent measurements
    recent: int = 5  # how many those are
    jump: float = (
        1.25  # a factor beyond which a measurement is another level or wrong; a second one of its kind decides
    )
    agree: float = 1.1  # a factor within which two measurements are the same
    pause_ns: int = SECOND  # between measurements while they differ
    longest_pause_ns: int = 15 * SECOND  # and once they agree
    patience_ns: int = 10 * SECOND  # until a train without an answer is given up


@dataclass(frozen=True, slots=True)
class Train:
    """So many bytes to send in one go."""

    token: int
    bytes: int


class Estimator:
    """Estimates what one link can carry towards its other end, in bytes a second."""

    def __init__(self, settings: TrainSettings, rng: random.Random) -> None:
        self.settings = settings
        self.estimate = math.nan
        self.spent_bytes = 0
        self.refused = 0  # answers that no train waited for, or that cannot be
        self._rng = rng
        self._known = settings.assumed  # what the bucket is filled by
        self._bucket = float(settings.first_bytes)
        self._filled_ns: int | None = None
        self._size = settings.first_bytes
        self._follow = 0  # bytes of the train that follows at once
        self._first_rate = 0.0  # of the train that it follows
        self._waits = False  # TCP was seen to wait
        self._train: Train | None = None
        self._follows = False  # that train is a second one
        self._token = 0
        self._sent_ns = 0
        self._rtt_ns = 0
        self._least = settings.least_bytes
        self._most = settings.most_bytes
        self._long = False  # the next train is longer than needed, to see whether the estimate holds
        self._slow = math.nan  # what such a train said that another one is to confirm
        self._recent: deque[float] = deque(maxlen=settings.recent)
        self._held: list[float] = []  # measurements beyond the jump, on one side of the estimate
        self._pause_ns = settings.pause_ns
        self._rest_until_ns = -NEVER
        self._longer = 1.0
        self._count = 0

    def travelled(self, rtt_ns: float) -> None:
        """The round trip of the link, as probes say."""
        self._rtt_ns = int(rtt_ns)

    @property
    def under_way(self) -> bool:
        """Whether a train is on the link: what probes say meanwhile is the train's doing."""
        return self._train is not None

    def next_train(self, now_ns: int) -> Train | None:
        """The train to send now, if any; there is never more than one on its way."""
        if self._filled_ns is None:
            self._filled_ns = now_ns
        if self._train is not None:
            if now_ns - self._sent_ns < self._patience_ns():
                return None
            self.lost(self._train.token)
        self._bucket = min(
            self._bucket + self.settings.share * self._known * (now_ns - self._filled_ns) / SECOND, 2.0 * self._need()
        )
        self._filled_ns = now_ns
        if self._follow:
            size, self._follow, self._follows = self._follow, 0, True
        elif self._bucket >= self._need() and now_ns >= self._rest_until_ns:
            size, self._follows = self._size, False
        else:
            return None
        self._token += 1
        self._train = Train(self._token, size)
        self._sent_ns = now_ns
        self._bucket -= size
        self.spent_bytes += size
        return self._train

    def next_ns(self) -> int:
        """When `next_train` has one, or gives one up, at the latest."""
        if self._train is not None:
            return self._sent_ns + self._patience_ns()
        if self._follow or self._filled_ns is None:
            return -NEVER
        missing = max(self._need() - self._bucket, 0.0)
        full_ns = self._filled_ns + math.ceil(missing / (self.settings.share * self._known) * SECOND)
        return max(full_ns, self._rest_until_ns)

    def trained(self, token: int, half_bytes: int, half_ns: int, now_ns: int) -> None:
        """The other end reports how many bytes came after the first half of a train, and within what time."""
        train = self._train
        if train is None or train.token != token or not 0 <= half_bytes <= train.bytes or half_ns < 0:
            self.refused += 1
            return
        self._train = None
        took_ns = max(now_ns - self._sent_ns, 1)
        certain = self._learn(train, half_bytes, half_ns, took_ns)
        rate = half_bytes * SECOND / max(half_ns, self.settings.noise_ns)
        coarse = 4 * half_bytes < train.bytes or half_ns < self.settings.short_ns
        if half_bytes == 0 or (coarse and self._size < self.settings.most_bytes):
            if certain > self.settings.jump * self.estimate:
                self._contradict(certain)
            before = self._size
            self._grow(half_ns, took_ns)
            if self._size == before and not self._follows and self._doubtful(train, half_ns):
                self._send_after(train, rate)  # it would always end in a pause
        elif not self._follows and self._doubtful(train, half_ns):
            self._send_after(train, rate)
        elif train.bytes < self.settings.least_bytes and half_ns < 20 * self.settings.aim_ns and not self._follows:
            self._size = min(4 * self._size, self.settings.least_bytes)
        else:
            if self._follows:
                self._waits = rate > self.settings.jump * self._first_rate
            self._record_rate(rate, self._stalled(half_bytes, half_ns), now_ns)

    def lost(self, token: int) -> None:
        """The train could not be sent or got no answer: shorter ones from now on, and a longer rest."""
        if self._train is None or self._train.token != token:
            return
        self._train = None
        self._follow = 0
        self._size = max(self._size // 2, self.settings.first_bytes)
        self._rest_until_ns = self._sent_ns + self._patience_ns()

    # --- the size of a train

    def _need(self) -> float:
        """What must be in the bucket for the next train and one that may have to follow."""
        return self._size * 1.5 if self._size > self.settings.window_bytes else self._size

    def _send_after(self, train: Train, rate: float) -> None:
        """Half as many bytes follow at once, while TCP is warm."""
        self._follow, self._first_rate = min(max(train.bytes // 2, self._least), train.bytes), rate

    def _patience_ns(self) -> int:
        return self.settings.patience_ns + 4 * self._rtt_ns

    def _doubtful(self, train: Train, half_ns: int) -> bool:
        """Whether the time of a second half may hold a pause of TCP.

        A pause is about a round trip; a train that fits the first window has none, and one that is longer than some
        round trips has filled the pipe before its second half began.
        """
        if train.bytes <= self.settings.window_bytes:
            return False
        return not (half_ns * 4 <= self._rtt_ns or half_ns >= 3 * self._rtt_ns > 0)

    def _stalled(self, half_bytes: int, half_ns: int) -> bool:
        """Whether a second half took a round trip longer than the estimate says: a queue was too short for the train,
        and what was lost had to be sent again. A shorter train will tell."""
        late_ns = half_ns - half_bytes * SECOND / self.estimate  # NaN while there is no estimate
        return late_ns > 0.8 * self._rtt_ns and half_ns < 3 * self._rtt_ns

    def _learn(self, train: Train, half_bytes: int, half_ns: int, took_ns: int) -> float:
        """What the link can carry for certain; before there is an estimate trains may grow by it, or must not."""
        if not self._rtt_ns:
            self._rtt_ns = took_ns  # of a train that was short: a little too long at worst
        noise_ns = self.settings.noise_ns
        # The pipe model: a train takes a round trip and its bytes by the bandwidth; coarse, as round trips vary.
        over_ns = max(took_ns - self._rtt_ns, 0)
        certain = SECOND * max(
            (half_bytes - SEGMENT) / (half_ns + noise_ns),
            (train.bytes - SEGMENT) / (over_ns + noise_ns + self._rtt_ns / 16),
        )
        if math.isnan(self.estimate):
            if over_ns > self._rtt_ns + noise_ns:
                self._known = min(self._known, 4 * train.bytes * SECOND / over_ns)
            self._known = max(self._known, certain)
        return certain

    def _grow(self, half_ns: int, took_ns: int) -> None:
        """The second half was too short to measure; but if the whole took long, the stamps are at fault."""
        if took_ns > max(SECOND, 16 * self._rtt_ns):
            return
        factor = 4 if half_ns * 3 < self.settings.short_ns else 2
        wanted = factor * self._size
        if self._size < self.settings.window_bytes < wanted:
            wanted = self.settings.window_bytes
        self._most = min(max(self._most, 2 * self._size), self.settings.most_bytes)
        self._size = self._affordable(wanted)

    def _affordable(self, wanted: float, times: int = 1) -> int:
        """What of that size the bucket is filled with in a few seconds, or in some times as many."""
        collected = times * self.settings.share * self._known * self.settings.collect_ns / SECOND
        return int(min(wanted, max(collected, self.settings.least_bytes), self._most))

    def _resize(self, rate: float) -> None:
        """The train that the estimate asks for, at most four times longer or shorter than the last."""
        settings = self.settings
        wanted = 2 * settings.aim_ns * self._longer * rate / SECOND * (2 if self._waits else 1)
        if self._longer == 1 and wanted > settings.window_bytes > 2.5 * settings.short_ns * rate / SECOND:
            wanted = settings.window_bytes  # a little short, but TCP sends it without waiting
        wanted = min(max(wanted, self._size / 4), self._size * 4)
        self._size = self._affordable(max(wanted, self._least))

    # --- the estimate

    def _record_rate(self, rate: float, stalled: bool, now_ns: int) -> None:
        settings = self.settings
        self._count += 1
        again = False
        self._recent.append(rate)
        if math.isnan(self.estimate):
            self.estimate = rate
        elif self._long and rate * settings.agree < self.estimate < 2 * rate and not stalled:
            again = self._slower(rate)
        elif self._apart(rate, self.estimate, settings.jump):
            if stalled:
                self._most = max(self._size // 2, settings.window_bytes)
            else:
                self._longer = min(self._longer * 1.5, settings.longer)
            self._beyond(rate)
        else:
            self.estimate += (1 - settings.old) * (statistics.median(self._recent) - self.estimate)
            self._held.clear()
            self._longer = max(self._longer * 0.9, 1.0)
            self._most = min(self._most * 21 // 20, settings.most_bytes)
            self._pause_ns = min(int(self._pause_ns * 1.5), settings.longest_pause_ns)
        self._known = self.estimate
        if not again:
            self._slow = math.nan
            self._resize(self._held[-1] if self._held else self.estimate)
            # A token bucket on the path lets short trains pass too quickly: now and then a longer one tells.
            self._long = not self._held and self._count % 10 == 2 and self._size <= settings.bucket_bytes
            if self._long:
                self._size = self._affordable(4 * self._size, times=3)
        self._rest_until_ns = now_ns + int(self._pause_ns * (0.8 + 0.4 * self._rng.random()))

    def _slower(self, rate: float) -> bool:
        """A long train came slower than short ones do: whether another as long must say so, too, before it is
        believed. One that was held up on its way, or read late, is followed by one that was not."""
        if math.isnan(self._slow) or self._apart(self._slow, rate, self.settings.agree):
            self._slow, self._pause_ns = rate, self.settings.pause_ns
            return True
        self._least = self._size
        self._level([self._slow, rate])
        return False

    def _beyond(self, rate: float) -> None:
        """A measurement far from the estimate: wrong, unless the next is the same, or two more are on its side."""
        self._pause_ns = self.settings.pause_ns
        if self._held and (self._held[-1] > self.estimate) != (rate > self.estimate):
            self._held.clear()
        self._held.append(rate)
        if len(self._held) == 3 or (len(self._held) == 2 and not self._apart(self._held[0], rate, self.settings.agree)):
            if rate > self.estimate:
                self._least = self.settings.least_bytes
            self._level(self._held)

    def _level(self, rates: list[float]) -> None:
        """From now on the link carries this."""
        self.estimate = statistics.median(rates)
        self._recent = deque(rates, maxlen=self.settings.recent)
        self._held = []
        self._count = 2

    def _contradict(self, certain: float) -> None:
        """A train was too short though by the estimate it was not: that is wrong, or a token bucket let the train pass
        and only a longer one will tell."""
        allowed = min(certain, 4 * self.estimate)
        self._least = min(2 * max(self._size, self._least), self._most)
        self._beyond(certain)
        self._known = max(self._known, self.estimate, allowed)

    @staticmethod
    def _apart(one: float, other: float, factor: float) -> bool:
        return max(one, other) > factor * min(one, other)
