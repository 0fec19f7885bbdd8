"""Changes of mode as state machines: five phases over the routers of a cloud, or one request to every child.

Who may change the mode, and what becomes of requests that meet, is decided by `arbitration`; both classes here run the
changes it starts. They send nothing: every call returns steps that the broker carries out one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chappe.machine import NEVER
from chappe.status.machine import Address
from chappe.status.modes.arbitration import ModeArbitration, Reply, Target
from chappe.wire.base import Command, Request
from chappe.wire.control import PrepareMode, SetMode
from chappe.wire.management import ChangeMode, CommitMode, InformMode

SECOND_NS = 1_000_000_000


class SendCommand(msgspec.Struct, frozen=True):
    """Send this command to a router or child broker; its answer goes to `answered` with the same number."""

    router: str
    command: type[Request | Command]  # InformMode, PrepareMode, SetMode, CommitMode; ChangeMode to a child
    mode: int
    number: int = 0
    rank: int = 0  # of a ChangeMode


class PersistMode(msgspec.Struct, frozen=True):
    """Make this mode durable: it is the one that holds after a restart."""

    mode: int
    rank: int


Step = SendCommand | Reply | PersistMode

EDGES, INNER = "edges", "inner"
PHASES: tuple[tuple[type[Command], str], ...] = (
    (InformMode, EDGES),
    (PrepareMode, EDGES),
    (SetMode, INNER),
    (SetMode, EDGES),
    (CommitMode, EDGES),
)


class _Awaited:
    """The commands that a barrier waits for, by router."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[str, list[int]] = {}  # numbers that a router has not answered, oldest first
        self.barrier: dict[str, int] = {}  # the last number of each router that counts

    def command(
        self, router: str, command: type[Request | Command], mode: int, waits: bool, rank: int = 0
    ) -> SendCommand:
        self._last += 1
        self._open.setdefault(router, []).append(self._last)
        if waits:
            self.barrier[router] = self._last
        return SendCommand(router, command, mode, self._last, rank)

    def answered(self, router: str, number: int) -> bool:
        """Whether the barrier waited for just this; number 0 stands for the oldest."""
        numbers = self._open.get(router, [])
        if number == 0 and numbers:
            number = numbers[0]
        if number not in numbers:
            return False
        numbers.remove(number)
        if self.barrier.get(router) != number:
            return False
        del self.barrier[router]
        return True

    def forget(self, router: str) -> bool:
        """Its connection is gone, and with it every answer; whether the barrier waited for it."""
        self._open.pop(router, None)
        return self.barrier.pop(router, None) is not None


class LeafModes:
    """The mode of one cloud, and its change in five phases with a barrier after each (GS-111).

    A router that is away, refuses or is silent for `timeout_ns` is left behind: no barrier waits for it any longer
    (GS-119), the answer names it, and if it is connected it still gets the mode with the others. From phase 3 on the
    new mode is the one that holds after a restart; before, the old one.
    """

    def __init__(self, mode: int = 0, rank: int = 0, timeout_ns: int = SECOND_NS) -> None:
        self.mode = mode
        self.rank = rank
        self._timeout_ns = timeout_ns
        self._arbitration = ModeArbitration(height=1)
        self._awaited = _Awaited()
        self._routers: dict[str, set[str]] = {EDGES: set(), INNER: set()}
        self._left: dict[str, str] = {}
        self._old = mode
        self._phase = 0  # 1..5 while a change runs
        self._deadline_ns = 0

    def restore(self, mode: int, rank: int) -> None:
        """The mode that holds, as it was last committed."""
        self.mode = self._old = mode
        self.rank = rank

    @property
    def next(self) -> int | None:
        """The mode a running change leads to."""
        running = self._arbitration.running
        return None if running is None else running.mode

    @property
    def phase(self) -> int:
        """1 to 5 while a change runs, else 0."""
        return self._phase

    def change(self, asker: Address, request: ChangeMode, edges: Iterable[str], inner: Iterable[str], now_ns: int,
               away: Iterable[str] = ()) -> list[Step]:  # fmt: skip
        """Somebody asks for a mode; `edges` and `inner` are the connected routers, `away` the others of the cloud."""
        self._routers = {EDGES: set(edges), INNER: set(inner)}
        verdict = self._arbitration.ask(asker, request, self.mode, self.rank)
        if verdict.start is None:
            return [*self._confirmed(verdict.rank), *verdict.replies]
        return self._begin(verdict.start, away, now_ns)

    def joined(self, router: str, edge: bool, now_ns: int) -> list[Step]:
        """A router is there and has its table: brings it to where the others are, in the middle of a change too."""
        self._awaited.forget(router)
        self._routers[EDGES if edge else INNER].add(router)
        running = self._arbitration.running
        if running is None:
            return [self._awaited.command(router, SetMode, self.mode, waits=False)]
        self._left.pop(router, None)
        old, new = self._old, running.mode
        if not edge:
            late = self._phase >= 3
            return [self._awaited.command(router, SetMode, new if late else old, waits=self._phase == 3)]
        if self._phase >= 4:
            commands: Sequence[tuple[type[Command], int]] = [(SetMode, new), (CommitMode, new)][: self._phase - 3]
        else:
            commands = [(SetMode, old), (InformMode, new), (PrepareMode, new)][: self._phase + 1]
        waits = PHASES[self._phase - 1][1] == EDGES
        sent = [self._awaited.command(router, command, mode, waits=False) for command, mode in commands]
        if waits:
            self._awaited.barrier[router] = sent[-1].number
        return list(sent)

    def answered(self, router: str, ok: bool, reason: str, now_ns: int, number: int = 0) -> list[Step]:
        """The answer to a command; without its number it is to the oldest that the router has not answered."""
        if not self._awaited.answered(router, number):
            return []
        if not ok:
            self._left[router] = f"refused: {reason}"
        return self._advance(now_ns)

    def lost(self, router: str, now_ns: int) -> list[Step]:
        """Its connection is gone."""
        for routers in self._routers.values():
            routers.discard(router)
        waited = self._awaited.forget(router)
        if self._phase:
            self._left[router] = "connection lost"
        return self._advance(now_ns) if waited else []

    def next_tick(self) -> int:
        return self._deadline_ns if self._phase else NEVER

    def tick(self, now_ns: int) -> list[Step]:
        """Ends a phase whose time is over."""
        if not self._phase or now_ns < self._deadline_ns:
            return []
        command = PHASES[self._phase - 1][0].__name__
        for router in self._awaited.barrier:
            self._left[router] = f"no answer to {command} within {self._timeout_ns / 1e9:g} s"
        self._awaited.barrier.clear()
        return self._advance(now_ns)

    def _confirmed(self, rank: int) -> list[Step]:
        """The present mode is also that of this rank."""
        if rank <= self.rank:
            return []
        self.rank = rank
        return [PersistMode(self.mode, rank)]

    def _begin(self, target: Target, away: Iterable[str], now_ns: int) -> list[Step]:
        self._left = dict.fromkeys(away, "away")
        self._old = self.mode
        return self._enter(1, target, now_ns)

    def _enter(self, phase: int, target: Target, now_ns: int) -> list[Step]:
        self._phase = phase
        self._deadline_ns = now_ns + self._timeout_ns
        steps: list[Step] = []
        if phase == 3:
            self.mode, self.rank = target.mode, target.rank
            steps.append(PersistMode(target.mode, target.rank))
        command, kind = PHASES[phase - 1]
        for router in sorted(self._routers[kind]):
            behind = router in self._left
            # One that is behind has not prepared, so it only gets the mode where everybody ends.
            if not behind or phase >= 3:
                steps.append(self._awaited.command(router, command, target.mode, waits=not behind))
        return steps if self._awaited.barrier else [*steps, *self._advance(now_ns)]

    def _advance(self, now_ns: int) -> list[Step]:
        target = self._arbitration.running
        if target is None or self._awaited.barrier:
            return []
        if self._phase < len(PHASES):
            return self._enter(self._phase + 1, target, now_ns)
        self._phase = 0
        steps = self._confirmed(target.rank)  # one that joined later may have raised it
        replies, start = self._arbitration.finished(left_behind(self._left))
        steps += replies
        if start is not None:
            steps += self._begin(start, set(self._left) - self._routers[EDGES] - self._routers[INNER], now_ns)
        return steps


class InnerModes:
    """The mode of everything below an inner broker: children change in parallel, the answer waits for all (GS-117).

    The mode is durable before the first child gets it, so that a child that comes back, or a broker that takes over,
    goes on with it.
    """

    def __init__(self, height: int, mode: int = 0, rank: int = 0, timeout_ns: int = 0) -> None:
        self.mode = mode
        self.rank = rank
        self._arbitration = ModeArbitration(height)
        self._given_ns = timeout_ns
        self._timeout_ns = 0
        self.rise(height)
        self._awaited = _Awaited()
        self._children: set[str] = set()
        self._left: dict[str, str] = {}
        self._deadline_ns = 0

    def restore(self, mode: int, rank: int) -> None:
        """The mode that holds, as it was last committed."""
        self.mode, self.rank = mode, rank

    def rise(self, height: int) -> None:
        """The height of the broker is another one: what it decides counts as of there."""
        self._arbitration.height = height
        # A leaf needs at most five phases for the change it is in and five for this one; each level passes answers on.
        self._timeout_ns = self._given_ns or (10 + 2 * (height - 1)) * SECOND_NS

    @property
    def next(self) -> int | None:
        """The mode a running change leads to."""
        running = self._arbitration.running
        return None if running is None else running.mode

    def change(self, asker: Address, request: ChangeMode, children: Iterable[str], now_ns: int,
               away: Iterable[str] = ()) -> list[Step]:  # fmt: skip
        """Somebody asks for a mode; `children` are those connected, `away` the others."""
        self._children = set(children)
        verdict = self._arbitration.ask(asker, request, self.mode, self.rank)
        if verdict.start is None:
            confirmed = self._confirmed(verdict.rank)
            again = self._commands(waits=False) if confirmed else []
            return [*confirmed, *again, *verdict.replies]
        return self._begin(verdict.start, away, now_ns)

    def joined(self, child: str, now_ns: int) -> list[Step]:
        """A child is there: it gets the mode that was decided here or above; nothing if none ever was."""
        self._children.add(child)
        self._awaited.forget(child)
        if not self.rank:
            return []
        running = self._arbitration.running is not None
        if running:
            self._left.pop(child, None)
        return [self._awaited.command(child, ChangeMode, self.mode, waits=running, rank=self.rank)]

    def answered(self, child: str, ok: bool, reason: str, now_ns: int, number: int = 0) -> list[Step]:
        """The answer to a command; the reason of one that succeeded names who was left behind there."""
        if not self._awaited.answered(child, number):
            return []
        if reason:
            self._left[child] = reason if ok else f"refused: {reason}"
        return self._advance(now_ns)

    def lost(self, child: str, now_ns: int) -> list[Step]:
        """Its connection is gone."""
        self._children.discard(child)
        if not self._awaited.forget(child):
            return []
        self._left[child] = "connection lost"
        return self._advance(now_ns)

    def next_tick(self) -> int:
        return self._deadline_ns if self._arbitration.running is not None else NEVER

    def tick(self, now_ns: int) -> list[Step]:
        """Ends a change whose time is over."""
        if self._arbitration.running is None or now_ns < self._deadline_ns:
            return []
        for child in self._awaited.barrier:
            self._left[child] = f"no answer within {self._timeout_ns / 1e9:g} s"
        self._awaited.barrier.clear()
        return self._advance(now_ns)

    def _confirmed(self, rank: int) -> list[Step]:
        if rank <= self.rank:
            return []
        self.rank = rank
        return [PersistMode(self.mode, rank)]

    def _commands(self, waits: bool) -> list[SendCommand]:
        return [
            self._awaited.command(child, ChangeMode, self.mode, waits, self.rank) for child in sorted(self._children)
        ]

    def _begin(self, target: Target, away: Iterable[str], now_ns: int) -> list[Step]:
        self._left = dict.fromkeys(away, "away")
        self._deadline_ns = now_ns + self._timeout_ns
        self.mode, self.rank = target.mode, target.rank
        steps: list[Step] = [PersistMode(self.mode, self.rank), *self._commands(waits=True)]
        return [*steps, *self._advance(now_ns)]

    def _advance(self, now_ns: int) -> list[Step]:
        target = self._arbitration.running
        if target is None or self._awaited.barrier:
            return []
        steps = self._confirmed(target.rank)
        if steps:
            steps += self._commands(waits=False)  # a higher rank joined: the children must know it too
        replies, start = self._arbitration.finished(left_behind(self._left))
        steps += replies
        if start is not None:
            steps += self._begin(start, set(self._left) - self._children, now_ns)
        return steps


def left_behind(reasons: dict[str, str]) -> str:
    """One line for the operator; empty if everybody has the mode."""
    return "left behind: " + ", ".join(f"{name} ({reasons[name]})" for name in sorted(reasons)) if reasons else ""
