"""The status table once more, slow and obvious: no interning, no minimal sets, no caches."""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW = 64
TOLERANCE_NS = 2_000_000_000
UNFLOODED_NS = 60_000_000_000

Ports = list[tuple[int, int]]


def priority_class(priority: int) -> int:
    return [0, 1, 1, 2, 2, 3, 3][priority]


@dataclass
class Path:
    port: int
    intervals: list[int]
    priorities: list[int]
    modes: int

    def lives_in(self, mode: int) -> bool:
        return bool(self.modes >> mode & 1)

    def interval(self, mode: int) -> int:
        return self.intervals[mode] if len(self.intervals) > 1 else self.intervals[0]

    def priority(self, mode: int) -> int:
        return self.priorities[mode] if len(self.priorities) > 1 else self.priorities[0]


@dataclass
class Variable:
    num: int
    den: int
    inputs: set[int]
    paths: dict[int, Path] = field(default_factory=dict)
    levels: list[int] = field(default_factory=lambda: [0] * 16)
    window: list[int] | None = None
    last: bytes | None = None
    last_created: int = 0

    def renew_window(self) -> None:
        if len(self.inputs) > 1 or any(self.levels):
            if self.window is None:  # another copy of the newest may come by the new route
                self.window = [] if self.last is None else [self.last_created]
        else:
            self.window = None

    def passes(self, created: int, wanted_ns: int) -> bool:
        if self.num == 0:
            return True
        number = (created * self.num + self.den // 2) // self.den
        periods = max(1, (wanted_ns * self.num + self.num - 1) // self.den)
        return number % periods == 0


class Model:
    def __init__(self) -> None:
        self.slot = 0
        self.pair: tuple[int, int] | None = None
        self.variables: dict[int, Variable] = {}
        self.levels: dict[int, int] = {}

    def set_variable(self, variable: int, num: int, den: int, inputs: list[int] | None) -> None:
        known = self.variables.setdefault(variable, Variable(num, den, set()))
        known.num, known.den = num, den
        if inputs is not None:
            known.inputs = set(inputs)
        known.renew_window()

    def remove_port(self, port: int) -> None:
        self.levels.pop(port, None)
        for known in self.variables.values():
            known.inputs.discard(port)
            known.paths = {number: path for number, path in known.paths.items() if path.port != port}
            known.renew_window()

    def _slot(self, known: Variable) -> tuple[list[tuple[int, int, int]], int]:
        """Port, wanted interval and class of each path that counts now, and the flood level."""
        if self.slot < 16:
            mode = self.slot
            paths = [path for path in known.paths.values() if path.lives_in(mode)]
            level = known.levels[mode]
        elif self.pair is None:
            return [], 0
        else:
            mode, new = self.pair
            paths = [path for path in known.paths.values() if path.lives_in(mode) and path.lives_in(new)]
            level = known.levels[mode] if known.levels[new] else 0
        return [(path.port, path.interval(mode), priority_class(path.priority(mode))) for path in paths], level

    def decide(self, port: int, variable: int, created: int, wall_ns: int, record: bytes) -> tuple[str, Ports, Ports]:
        known = self.variables.get(variable)
        if known is None:
            return "UNKNOWN", [], []
        wants, level = self._slot(known)
        permitted = port in known.inputs or (level > 0 and self.levels.get(port, 0) > 0)
        tolerance_ns = TOLERANCE_NS if level else UNFLOODED_NS
        if permitted and (level or wall_ns > 0) and created - wall_ns > tolerance_ns:
            return "FUTURE", [], []
        if not wants and not level:
            wanted_elsewhere = bool(known.paths) or any(known.levels)
            if permitted:
                self._keep(known, created, record)
                return ("NOT_IN_MODE" if wanted_elsewhere else "FORWARD"), [], []
            return ("NOT_IN_MODE" if wanted_elsewhere else "NOT_PERMITTED"), [], []
        if not permitted:
            return "NOT_PERMITTED", [], []
        if known.window is not None:
            if created in known.window:
                return "DUPLICATE", [], []
            if len(known.window) == WINDOW and created < min(known.window):
                return "STALE", [], []
            known.window = [*known.window, created][-WINDOW:]
        self._keep(known, created, record)
        scope = {other for other, height in self.levels.items() if 1 <= height <= level}
        passed = dict.fromkeys(scope, 0)
        failed: dict[int, int] = {}
        for other in {want[0] for want in wants} - scope:
            urgency = min(want[2] for want in wants if want[0] == other)
            fits = any(known.passes(created, want[1]) for want in wants if want[0] == other)
            (passed if fits else failed)[other] = urgency
        return "FLOODED" if level else "FORWARD", sorted(passed.items()), sorted(failed.items())

    def _keep(self, known: Variable, created: int, record: bytes) -> None:
        if known.last is None or created >= known.last_created:
            known.last, known.last_created = record, created
