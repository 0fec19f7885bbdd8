"""Which extrapolator suits a variable: its history is played again with gaps, and what each would have said is judged.

The functions are those of clients (`chappe.client.extrapolation`). Half of the gaps choose, the other half say how good
the choice is, so that nobody is praised for luck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from chappe.client.extrapolation import Average, Averaged, Estimator, Extrapolator, Polynomial, Rational

LAST = "last"
CANDIDATES: Mapping[str, Extrapolator] = {
    LAST: Average(1),
    "average": Average(4),
    "polynomial 1": Polynomial(1),
    "polynomial 2": Polynomial(2),
    "polynomial 3": Polynomial(3),
    "averaged": Averaged((1, 2, 3)),
    "rational": Rational(4),
}
GAPS = (1, 2, 3)  # values in a row that do not come
TRIALS = 240
NEEDED = max(each.points for each in CANDIDATES.values())


class Choice(NamedTuple):
    """The function that was off least, by the mean of how far it was off in gaps that had no part in the choice."""

    function: str
    points: int
    error: float
    error_last: float  # of the last value before the gap
    errors: dict[str, float]
    trials: int
    failed: int  # of the chosen one: the last value stood in

    @property
    def gain(self) -> float:
        """The part of the error of the last value that it saves."""
        return 1 - self.error / self.error_last if self.error_last > 0 else 0.0


def choose(created_ns: ArrayLike, values: ArrayLike) -> Choice | None:
    """The best of the candidates for values in any order; None if they are too few to judge anybody."""
    stamps, read = np.asarray(created_ns, dtype=np.int64), np.asarray(values, dtype=np.float64)
    sound = np.isfinite(read)
    stamps, places = np.unique(stamps[sound], return_index=True)
    read = read[sound][places]
    room = len(stamps) - NEEDED - max(GAPS)
    if room < 4:
        return None
    trials = []
    for number, start in enumerate(np.unique(np.linspace(NEEDED, NEEDED + room - 1, min(room, TRIALS)).astype(int))):
        gap = GAPS[number // 2 % len(GAPS)]
        trials.append((int(start), int(start) + gap - 1))
    off: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    for name, extrapolator in CANDIDATES.items():
        off[name], failed[name] = [], 0
        for start, missing in trials:
            known = slice(start - extrapolator.points, start)
            told = _told(extrapolator, stamps[known].tolist(), read[known].tolist(), int(stamps[missing]))
            failed[name] += told is None
            off[name].append(abs((float(read[start - 1]) if told is None else told) - float(read[missing])))
    chosen = min(CANDIDATES, key=lambda name: (float(np.mean(off[name][::2])), list(CANDIDATES).index(name)))
    errors = {name: float(np.mean(each[1::2])) for name, each in off.items()}
    return Choice(
        chosen, CANDIDATES[chosen].points, errors[chosen], errors[LAST], errors, len(trials), failed[chosen]
    )  # fmt: skip


def _told(extrapolator: Extrapolator, stamps: list[int], values: list[float], at_ns: int) -> float | None:
    estimator = Estimator(extrapolator)
    for stamp, value in zip(stamps, values, strict=True):
        estimator.add(stamp, value)
    try:
        return estimator.at(at_ns)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return None
