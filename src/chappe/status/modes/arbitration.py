"""Which request for a mode counts when several meet (GS-120): the highest rank, and of equal rank the latest."""

from __future__ import annotations

import msgspec

from chappe.status.machine import PARENT, Address
from chappe.wire.constants import MODES
from chappe.wire.management import ChangeMode


class Reply(msgspec.Struct, frozen=True):
    """Answer this request: Done with the reason as its note, or Failed."""

    asker: Address
    ok: bool
    code: str
    reason: str
    request_id: int


class Target(msgspec.Struct):
    """A mode to be entered, the highest rank that asked for it, and everybody who waits for the end."""

    mode: int
    rank: int
    askers: list[tuple[Address, int]]

    def replies(self, ok: bool, code: str, reason: str) -> list[Reply]:
        return [Reply(asker, ok, code, reason, request_id) for asker, request_id in self.askers]


class Verdict(msgspec.Struct, frozen=True):
    """What a request leads to at once."""

    replies: list[Reply] = []
    start: Target | None = None  # this change begins now
    rank: int = 0  # the present mode is confirmed by this rank


class ModeArbitration:
    """One change runs at a time and at most one waits.

    The rank of a request is the height of the broker that decided: a parent says it, anybody else has that of the
    broker it asks.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self.running: Target | None = None
        self.waiting: Target | None = None

    def ask(self, asker: Address, request: ChangeMode, mode: int, rank: int) -> Verdict:
        """`mode` is the present one and `rank` that of the broker that set it."""
        mine = Target(request.mode, request.rank if asker == PARENT else self.height, [(asker, request.id)])
        if not 0 <= request.mode < MODES:
            reason = f"there is no mode {request.mode}: modes are 0 to {MODES - 1}"
            return Verdict(mine.replies(False, "invalid", reason))
        if self.running is None:
            if mine.mode == mode:
                return Verdict(mine.replies(True, "", ""), rank=mine.rank)
            if mine.rank < rank:
                return Verdict(mine.replies(False, "denied", _overruled(mode, rank, mine.rank)))
            self.running = mine
            return Verdict(start=mine)
        return Verdict(self._meet(self.running, mine))

    def _meet(self, running: Target, mine: Target) -> list[Reply]:
        last = self.waiting or running
        if mine.mode == last.mode:
            return _join(last, mine)
        if mine.mode == running.mode and mine.rank < last.rank:
            return _join(running, mine)  # it gets what it asked for, though not for long
        if mine.rank < last.rank:
            return mine.replies(False, "denied", _overruled(last.mode, last.rank, mine.rank))
        reason = f"replaced by a later request for mode {mine.mode}"
        replaced = [] if self.waiting is None else self.waiting.replies(False, "stale", reason)
        if mine.mode == running.mode:
            self.waiting = None
            return [*replaced, *_join(running, mine)]
        self.waiting = mine
        return replaced

    def finished(self, note: str) -> tuple[list[Reply], Target | None]:
        """The running change is over; what to answer, and the change that begins next."""
        assert self.running is not None
        replies = self.running.replies(True, "", note)
        self.running, self.waiting = self.waiting, None
        return replies, self.running


def _join(target: Target, mine: Target) -> list[Reply]:
    target.rank = max(target.rank, mine.rank)
    target.askers += mine.askers
    return []


def _overruled(mode: int, rank: int, mine: int) -> str:
    return f"mode {mode} was set by a broker of height {rank}; one of height {mine} cannot change it, ask there"
