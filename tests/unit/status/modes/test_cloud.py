"""The change from mode 1 to mode 2 in one cloud, at its broker: tables before it, and the order of its commands."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from chappe.wire.base import Done, Message, Qos
from chappe.wire.control import PrepareMode, SetMode
from chappe.wire.management import ChangeMode, CommitMode, Granted, InformMode
from tests.support.forest import Forest
from tests.support.tree import deployment

CLOUD = deployment(
    {"leaf": ""}, {"leaf": ("e0", "e1", "e2", "I0", "I1", "B0")}, ("e0-I0", "I0-e1", "e0-I1", "I1-B0", "B0-e2")
)
MS = 1_000_000
PHASES: tuple[type[Message], ...] = (InformMode, PrepareMode, SetMode, CommitMode)


def by_mode(**modes: int) -> tuple[Qos, ...]:
    """Qualities with an interval in milliseconds for some modes."""
    return tuple(Qos(interval_ns=modes.get(f"m{mode}", 0) * MS) for mode in range(16))


def started() -> Forest:
    forest = Forest(CLOUD)
    operator = forest.plane.operator("leaf")
    operator.ask(ChangeMode, mode=1)
    forest.plane.settle()
    forest.publish("e0", "p0/var1")
    forest.publish("e0", "p0/var2")
    for edge, name, qos, modes in (
        ("e1", "p0/var1", by_mode(m1=20, m2=40), 0b110),
        ("e2", "p0/var1", by_mode(m1=40, m2=20), 0b110),
        ("e2", "p0/var2", by_mode(m1=40), 0b010),
    ):
        assert isinstance(forest.granted(edge, name, *qos, modes=modes), Granted)
    forest.plane.trace.clear()
    return forest


def test_every_router_has_the_intervals_of_both_modes_before_the_change() -> None:
    forest = started()
    tables = {
        name: sorted(
            (path.variable.variable, path.target, path.modes, path.intervals_ns[1] // MS, path.intervals_ns[2] // MS)
            for path in router.paths.values()
            if len(path.intervals_ns) == 16
        )
        for name, router in forest.plane.routers.items()
    }
    assert tables["e0"] == [("var1", "I0", 0b110, 20, 40), ("var1", "I1", 0b110, 40, 20), *tables["e0"][2:]]
    assert tables["I0"] == [("var1", "e1", 0b110, 20, 40)]
    assert [row for row in tables["B0"] if row[0] == "var1"] == [("var1", "e2", 0b110, 40, 20)]
    only = [path for path in forest.router("B0").paths.values() if path.variable.variable == "var2"]
    assert [path.modes for path in only] == [0b010]


@pytest.mark.spec("GS-111")
@pytest.mark.parametrize("seed", range(5))
def test_no_router_is_told_a_phase_before_all_have_confirmed_the_one_before(seed: int) -> None:
    forest = started()
    forest.plane.choose = Random(seed).randrange
    operator = forest.plane.operator("leaf")
    request = operator.ask(ChangeMode, mode=2)
    forest.plane.settle()
    assert operator.answers[request] == Done(id=request)
    phases: list[set[str]] = []
    asked: dict[tuple[str, int], int] = {}
    spans: list[tuple[int, int]] = []  # of each phase: the first command and the last confirmation in the trace
    for at, (source, target, message) in enumerate(forest.plane.trace):
        if isinstance(message, PHASES):
            phase = PHASES.index(type(message)) + (type(message) is CommitMode)
            if isinstance(message, SetMode):
                phase += target.islower()
            while len(phases) <= phase:
                phases.append(set())
                spans.append((at, at))
            phases[phase].add(target)
            asked[target, message.id] = phase  # type: ignore[attr-defined]
        elif isinstance(message, Done) and (source, message.id) in asked:
            phase = asked[source, message.id]
            spans[phase] = (spans[phase][0], max(spans[phase][1], at))
    edges, inner = {"e0", "e1", "e2"}, {"I0", "I1", "B0"}
    assert phases == [edges, edges, inner, edges, edges]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
