"""When traffic moves to another transport and when it comes back (MR-040, MR-041); no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

LEAST = 20  # datagrams of a round: fewer say nothing about one in a hundred


@dataclass(frozen=True, slots=True)
class Constraint:
    """Leave for `target` when a factor was above `enter` for so many rounds in a row; return below `leave`."""

    target: str = "tcp"
    factor: str = "loss"
    enter: float = 0.05
    enter_rounds: int = 3
    leave: float = 0.01
    leave_rounds: int = 30

    def __post_init__(self) -> None:
        if not (self.leave <= self.enter and self.enter_rounds >= 1 and self.leave_rounds >= 1):
            raise ValueError(f"a constraint needs leave {self.leave} <= enter {self.enter}, and rounds of at least 1")


class Migration:
    """Judges one link by its constraint, a value a round; between the thresholds everything stays as it is."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.away = False
        self.value = math.nan  # of the last round
        self._rounds = 0  # in a row beyond the threshold that counts now

    def judge(self, value: float) -> Literal["leave", "return"] | None:
        """Take the value of a round; what to do, said once. A round without a value (NaN) says nothing."""
        if math.isnan(value):
            return None
        self.value = value
        limits = self.constraint
        beyond = value < limits.leave if self.away else value > limits.enter
        self._rounds = self._rounds + 1 if beyond else 0
        if self._rounds < (limits.leave_rounds if self.away else limits.enter_rounds):
            return None
        self.away, self._rounds = not self.away, 0
        return "leave" if self.away else "return"

    def reason(self) -> str:
        """Why the last move was made."""
        limits = self.constraint
        said = f"{limits.factor} {self.value:.1%}"
        if self.away:
            return f"{said}, above {limits.enter:.0%} for {limits.enter_rounds} rounds"
        return f"{said}, below {limits.leave:.0%} for {limits.leave_rounds} rounds"


class LossRounds:
    """The share of datagrams lost on the way there, from what the other side says it accepted."""

    def __init__(self, least: int = LEAST) -> None:
        self._least = least
        self._newest = self._accepted = self._sent = 0

    def report(self, newest: int, accepted: int, sent: int) -> float | None:
        """The other side has seen `newest` and accepted so many in all, we sent up to `sent`: the loss of a round.

        None while the round has too few datagrams. What cannot be true is not believed.
        """
        if not (self._newest <= newest <= sent and self._accepted <= accepted <= newest):
            return None
        seen = newest - self._newest
        if seen == 0 and sent - self._sent >= 2 * self._least:
            self._sent = sent
            return 1.0  # none of them has come
        if seen < self._least:
            return None
        loss = max(0.0, 1.0 - (accepted - self._accepted) / seen)
        self._newest, self._accepted, self._sent = newest, accepted, sent
        return loss
