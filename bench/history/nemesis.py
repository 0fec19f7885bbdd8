"""What is done to the processes of a run: a plan that follows from the seed, and whoever carries it out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PARTS = ("cut", "isolate", "split", "pause", "kill", "blackout", "clock", "disk")
QUIET_S = (0.3, 2.0)  # between two faults
LASTS_S = {
    "cut": (1.0, 12.0), "isolate": (1.0, 10.0), "split": (1.0, 10.0), "pause": (0.3, 6.0), "kill": (0.2, 3.0),
    "blackout": (0.2, 3.0), "clock": (2.0, 15.0), "disk": (1.0, 6.0),
}  # fmt: skip
CUTS = ("cut", "isolate", "split")
JUMPS_S = (-3600.0, -60.0, -2.0, 2.0, 60.0, 3600.0)
TOGETHER = 0.6  # how often the next fault begins before this one ends


@dataclass(frozen=True, slots=True)
class Step:
    """One fault: `subject` is a process, two with `-` between them for a cut, or several with `+`."""

    kind: str
    subject: str
    at_s: float
    lasts_s: float
    jump_s: float = 0.0  # of a clock
    both: bool = True  # directions of a cut

    @property
    def names(self) -> tuple[str, ...]:
        """Of a split or blackout: one side, or all that are killed."""
        return tuple(self.subject.split("+"))

    @property
    def pair(self) -> tuple[str, str]:
        one, _, other = self.subject.partition("-")
        return one, other

    def __str__(self) -> str:
        more = f" by {self.jump_s:+g} s" if self.kind == "clock" else "" if self.both else " (one way)"
        return f"{self.at_s:.1f} s {self.kind} {self.subject}{more} for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Targets:
    """What may be hit, by kind; an empty kind is left out."""

    cut: Sequence[str] = ()  # pairs
    isolate: Sequence[str] = ()  # from everybody
    split: Sequence[str] = ()  # nodes on one side; clients stay at their nodes
    pause: Sequence[str] = ()
    kill: Sequence[str] = ()
    blackout: Sequence[str] = ()  # killed at once
    clock: Sequence[str] = ()
    disk: Sequence[str] = ()


def plan(seed: int, seconds: float, targets: Targets) -> list[Step]:
    """Faults for so long, each kind before any comes twice; all are over by then. The same seed gives the same plan."""
    chance = random.Random(seed)
    steps: list[Step] = []
    kinds: list[str] = []
    at_s = chance.uniform(*QUIET_S)
    while True:
        if not kinds:
            kinds = [kind for kind in PARTS if getattr(targets, kind)]
            if not kinds:
                return []
            chance.shuffle(kinds)
        kind = kinds.pop()
        lasts_s = min(chance.uniform(*LASTS_S[kind]), seconds / 4)
        step = Step(
            kind, chance.choice(list(getattr(targets, kind))), round(at_s, 3), round(lasts_s, 3),
            chance.choice(JUMPS_S) if kind == "clock" else 0.0, kind != "cut" or chance.random() < 0.7,
        )  # fmt: skip
        if step.at_s + step.lasts_s > seconds:
            return steps
        if _collides(step, steps):
            kinds.append(kind)  # a little later
        else:
            steps.append(step)
        together = chance.random() < TOGETHER
        at_s += chance.uniform(*QUIET_S) + (0.0 if together else lasts_s)


def _collides(step: Step, steps: Sequence[Step]) -> bool:
    """Whether the same is done at that time: a killed process cannot be paused, a line that is cut not be cut again."""
    return any(
        other.at_s < step.at_s + step.lasts_s and step.at_s < other.at_s + other.lasts_s and _same(step, other)
        for other in steps
    )


def _same(one: Step, other: Step) -> bool:
    if one.kind in CUTS and other.kind in CUTS:
        return one.kind != "cut" or other.kind != "cut" or set(one.pair) == set(other.pair)
    return one.kind not in CUTS and other.kind not in CUTS and bool(set(one.names) & set(other.names))
