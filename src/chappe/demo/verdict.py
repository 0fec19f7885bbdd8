"""Whether the demo did what it should have: anything lost, repeated, reordered or filtered wrongly is named."""

from __future__ import annotations

from chappe.demo.phasors import SPEEDS
from chappe.demo.state import State, drops


def problems(state: State) -> list[str]:
    """One line for each thing that is wrong; lateness is none of them."""
    found: list[str] = []
    if state.publisher["refused"]:
        found.append(f"publisher: {state.publisher['refused']} values did not fit its queue")
    for name, result in state.results.items():
        for kind, count in result["counts"].items():
            words = "; ".join(word for word in result["words"] if word.startswith(kind))
            found.append(f"{name}: {count} {kind} ({words})")
        if result["received"] != result["expected"] and not result["counts"]:
            found.append(f"{name}: got {result['received']} of {result['expected']}")
        if result["dropped"]:
            found.append(f"{name}: {result['dropped']} dropped for it")
    for name in SPEEDS:
        unwanted = state.publisher["values"] - state.results[name]["expected"]
        if state.filtered(name) != unwanted:
            found.append(f"{name}: node c filtered {state.filtered(name)} values, {unwanted} were not asked for")
    for node, sample in state.nodes.items():
        for reason, count in drops(sample.row).items():
            found.append(f"node {node}: {count} dropped ({reason})")
        if sample.row["unrouted"]:
            found.append(f"node {node}: {sample.row['unrouted']} events went to nobody")
        if sample.row["bad_frames"]:
            found.append(f"node {node}: {sample.row['bad_frames']} bad frames")
    return found
