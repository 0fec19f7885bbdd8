"""Figures of the source's experiments on measuring and routing: what `chappe bench tables` holds itself against."""

from __future__ import annotations

from dataclasses import dataclass, field

Pair = tuple[str, str]

INTERVALS_MS = (50, 100, 250, 500, 1000, 2000, 5000, 10_000)
# Table 1: the cost that was measured at each interval. Those marked `+` there kept rising until the run was stopped.
TABLE_1: dict[float, tuple[float, ...]] = {
    90.0: (4000, 2000, 900, 94, 93, 93, 93, 93),
    20.0: (900, 93, 24, 23, 23, 23, 23, 23),
    0.5: (300, 20, 1, 1, 1, 1, 1, 1),
}
RISING = 300  # from here on
PLACES = {90.0: "CGL-Korea", 20.0: "CGL-San Diego", 0.5: "CGL-CGL"}

FIGURE_17: dict[Pair, float] = {
    ("1", "2"): 1, ("1", "3"): 1, ("2", "10"): 1, ("2", "11"): 1, ("3", "12"): 1, ("3", "21"): 1, ("11", "12"): 3,
    ("10", "20"): 1, ("20", "21"): 1, ("21", "30"): 1,
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Links that cost something, and the ways that follow: (nodes, cost) by (from, to)."""

    name: str
    costs: dict[Pair, float]
    ways: dict[Pair, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    hops: dict[Pair, tuple[str, float]] = field(default_factory=dict)  # where only the next hop is stated


def _hops(text: str) -> dict[Pair, tuple[str, float]]:
    """`to=next/cost` from broker 1."""
    found = {}
    for entry in text.split():
        to, _, rest = entry.partition("=")
        hop, _, cost = rest.partition("/")
        found["1", to] = (hop, float(cost))
    return found


def _ways(text: str) -> dict[Pair, tuple[tuple[str, ...], float]]:
    """`a-b-c=cost`: the way from a to c."""
    found = {}
    for entry in text.split():
        way, _, cost = entry.partition("=")
        nodes = tuple(way.split("-"))
        found[nodes[0], nodes[-1]] = (nodes, float(cost))
    return found


_TABLE_4 = FIGURE_17 | {("3", "12"): 3, ("11", "12"): 1}
TABLES_3_TO_5 = (
    Table("table 3", FIGURE_17, hops=_hops("2=2/1 3=3/1 10=2/2 11=2/2 12=3/2 20=2/3 21=3/2 30=3/3")),
    Table("table 4", _TABLE_4, hops=_hops("2=2/1 3=3/1 10=2/2 11=2/2 12=2/3 20=2/3 21=3/2 30=3/3")),
    Table("table 5", _TABLE_4 | {("1", "2"): 3}, hops=_hops("2=2/3 3=3/1 10=2/4 11=2/4 12=3/4 20=3/3 21=3/2 30=3/3")),
)  # fmt: skip

# Ways of tables 6 to 8 by the averages printed there. In table 8 the row CGL1-CGL3 must be CGL1-CGL2: only then the
# routes that the text reports exist.
TABLES_6_TO_8 = (
    Table(
        "table 6",
        {("1", "2"): 44.5, ("1", "3"): 1.6, ("2", "4"): 41.2, ("3", "4"): 1.4},
        _ways("1-3-4=3 1-3=1.6 1-3-4-2=44.2 2-4=41.2 2-4-3=42.6"),
    ),
    Table(
        "table 7",
        {
            ("1", "2"): 39.5, ("1", "3"): 43.8, ("2", "3"): 2.1, ("2", "4"): 1.1, ("2", "5"): 2.2, ("3", "4"): 1.9,
            ("4", "5"): 1.8,
        },
        _ways("1-2=39.5 1-2-3=41.6 1-2-4=40.6 1-2-5=41.7"),
    ),
    Table(
        "table 8",
        {
            ("2", "1"): 102, ("2", "3"): 1.2, ("2", "6"): 52, ("3", "1"): 99, ("3", "4"): 30, ("5", "4"): 29,
            ("5", "6"): 50,
        },
        _ways("6-2-3-1=152.2 5-4-3-1=158 5-4-3-2=60.2 5-4-3=59"),
    ),
)  # fmt: skip
