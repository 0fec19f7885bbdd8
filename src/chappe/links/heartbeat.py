"""Failure detection of a link (GS-004): heartbeats both ways, the time the other side was last heard, a status."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LinkStatus(Enum):
    """What a link is good for at this moment."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPECT = "suspect"  # silent for longer than an interval and a half
    FAILED = "failed"  # silent for `misses` intervals, or the connection was lost


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now, and when to ask again."""

    status: LinkStatus
    send: bool  # queue a heartbeat
    dead: bool  # declare the link failed: True once
    next_ns: int  # monotonic time of the next `check`


class Heartbeat:
    """Watches one link; all times are monotonic nanoseconds.

    A process that stands still hears nobody, and what was said meanwhile waits to be read: silence after the time when
    a check should have come raises no suspicion, and if that is more than an interval it does not count at all, and
    the link has another interval before it has failed.
    """

    def __init__(self, interval_ns: int = 1_000_000_000, misses: int = 3) -> None:
        if interval_ns <= 0 or misses < 1:
            raise ValueError(f"heartbeat needs a positive interval ({interval_ns} ns) and at least one miss ({misses})")
        self.interval_ns = interval_ns  # silence is counted in it
        self.send_ns = interval_ns  # own heartbeats are never further apart: the other side counts on what was agreed
        self.misses = misses
        self.status = LinkStatus.CONNECTING
        self.last_heard_ns = 0
        self._last_sent_ns = 0
        self._due_ns = 0  # when the next check should come

    def connected(self, now_ns: int) -> None:
        """The handshake is over: the silence of the other side is counted from here."""
        self.status = LinkStatus.CONNECTED
        self.last_heard_ns = now_ns
        self._last_sent_ns = now_ns
        self._due_ns = now_ns + self.interval_ns

    def excuse(self, now_ns: int) -> None:
        """Silence until now counts for nothing."""
        self.last_heard_ns = max(self.last_heard_ns, now_ns)

    def connecting(self) -> None:
        """The link is being made again."""
        self.status = LinkStatus.CONNECTING

    def lost(self) -> None:
        """The connection ended by itself."""
        self.status = LinkStatus.FAILED

    def check(self, now_ns: int, last_heard_ns: int) -> Verdict:
        """Judge by the time of the last byte heard; any frame is a sign of life."""
        if self.status in (LinkStatus.CONNECTING, LinkStatus.FAILED):
            return Verdict(self.status, False, False, now_ns + self.interval_ns)
        late_ns, misses = max(0, now_ns - self._due_ns), self.misses
        stood_still = late_ns > self.interval_ns
        if stood_still:
            self.last_heard_ns = min(now_ns, self.last_heard_ns + late_ns)
            misses += 1
        self.last_heard_ns = max(self.last_heard_ns, last_heard_ns)
        silent_ns = now_ns - self.last_heard_ns
        if silent_ns >= misses * self.interval_ns:
            self.status = LinkStatus.FAILED
            return Verdict(self.status, False, True, now_ns + self.interval_ns)
        if not stood_still:
            suspect = 2 * (silent_ns - late_ns) > 3 * self.interval_ns
            self.status = LinkStatus.SUSPECT if suspect else LinkStatus.CONNECTED
        send = now_ns - self._last_sent_ns >= self.send_ns
        if send:
            self._last_sent_ns = now_ns
        return Verdict(self.status, send, False, self._next(now_ns))

    def _next(self, now_ns: int) -> int:
        dead_ns = self.last_heard_ns + self.misses * self.interval_ns
        if dead_ns <= now_ns:  # this check came late
            dead_ns = now_ns + self.interval_ns
        self._due_ns = max(now_ns + 1, min(self._last_sent_ns + self.send_ns, dead_ns))
        return self._due_ns
