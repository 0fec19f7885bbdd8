"""Interest: when it is quiet every node knows where a topic is wanted, at the level at which it sees it."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chappe.linkstate.settings import Settings
from chappe.wire.patterns import Pattern, matches
from tests.property.test_linkstate import LAYOUTS, Act, acts, play
from tests.support.linkstates import LinkStates

FAST = partial(settings, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
LONGEST_NS = 8 * Settings().originate_most_ns  # of a unit of units
TOPICS = ("a", "a/b", "a/b/c", "x/y")
patterns = st.sampled_from(("a", "a/b", "a/+", "a/#", "+/b", "#", "x/y", "a/b/c")).map(lambda text: Pattern("s", text))
wishes = st.lists(st.tuples(st.integers(0, 99), st.frozensets(patterns, max_size=3)), max_size=12)


def wanted(mesh: LinkStates, wants: dict[str, frozenset[Pattern]], name: str, topic: str) -> set[object]:
    """The things in the map of a node that hold somebody who wants a topic."""
    vertex_ids = mesh.true_things(name)
    return {
        vertex_ids[other]
        for other, wishes in wants.items()
        if other != name and other in vertex_ids and any(matches(wish, "s", topic.encode()) for wish in wishes)
    }


@pytest.mark.parametrize("limit", [64, 1])
@given(st.sampled_from(LAYOUTS), acts, acts, wishes, st.integers(0, 1 << 32))
@FAST(max_examples=60)
def test_quiet_interest_is_true_or_too_much_in_a_summary(
    limit: int, layout: dict[str, str], before: list[Act], after: list[Act], told: list[tuple[int, frozenset[Pattern]]],
    seed: int,
) -> None:  # fmt: skip
    mesh = LinkStates(layout, Settings(summary=limit), seed)
    play(mesh, before)
    wants: dict[str, frozenset[Pattern]] = {}
    for number, wish in told:
        name = sorted(mesh.nodes)[number % len(mesh.nodes)]
        wants[name] = wish
        mesh.put(name, mesh.nodes[name].want(wish, (), mesh.now_ns))
    alive = dict(mesh.nodes)
    play(mesh, after)
    mesh.run(LONGEST_NS)  # interest that is lost is told last
    mesh.settle()
    held = {name: wish for name, wish in wants.items() if mesh.nodes.get(name) is alive[name]}
    for name, state in mesh.nodes.items():
        for topic in TOPICS:
            found, true = set(state.wanting("s", topic.encode())), wanted(mesh, held, name, topic)
            assert found == true if limit == 64 else found >= true, (name, topic)
            assert {vertex_id for vertex_id in found if vertex_id.level == 0} == {
                vertex_id for vertex_id in true if vertex_id.level == 0
            }
