"""Whether the demo did what it should have: anything lost, repeated, reordered or filtered wrongly is named."""

from __future__ import annotations

from collections.abc import Iterator

from chappe.demo.grid import WATCHING
from chappe.demo.phasors import SPEEDS
from chappe.demo.state import Row, State, drops

LATE = 4  # alerts under way to one router when a flooding ends: it has three neighbours


def problems(state: State) -> list[str]:
    """One line for each thing that is wrong; lateness is none of them."""
    return [*_published(state), *_subscribed(state), *_routed(state)]


def _published(state: State) -> Iterator[str]:
    if state.publisher["refused"]:
        yield f"publisher: {state.publisher['refused']} values did not fit its queue"


def _subscribed(state: State) -> Iterator[str]:
    for name, result in (*state.results.items(), ("alerts", state.heard)):
        yield from (f"{name}: {problem}" for problem in _result(result))
    for name in SPEEDS.keys() - state.results.keys():
        yield f"{name}: it said nothing"
    copies = state.routers[WATCHING].row["drop_duplicate"]
    if copies < state.results["full"]["received"] / 2:
        yield f"full: router {WATCHING} has dropped {copies} second copies only: there were no two paths"


def _result(result: Row) -> Iterator[str]:
    for kind, count in result["counts"].items():
        words = "; ".join(word for word in result["words"] if word.startswith(kind))
        yield f"{count} {kind} ({words})"
    if result["received"] != result["expected"] + result["extra"] and not result["counts"]:
        yield f"got {result['received']} of {result['expected']} and {result['extra']} more"
    if result["dropped"]:
        yield f"{result['dropped']} dropped for it"


def _routed(state: State) -> Iterator[str]:
    for router, sample in state.routers.items():
        for reason, count in drops(sample.row).items():
            # An alert that was under way when its flooding ended finds no entry in the next table.
            if reason != "unknown" or count > LATE * state.floods:
                yield f"router {router}: {count} dropped ({reason})"
        if sample.row["bad_frames"]:
            yield f"router {router}: {sample.row['bad_frames']} bad frames"


def not_shown(state: State) -> list[str]:
    """What there was no time for."""
    done = {"a condensation": state.condensed, "a change of mode and back": state.changes > 1, "a flood": state.floods}
    return [what for what, shown in done.items() if not shown]
