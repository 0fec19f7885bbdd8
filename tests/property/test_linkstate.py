"""Whatever happens to a mesh: when it is quiet, every map follows from the live links, and so do the routes."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from chappe.linkstate.settings import MS, SECOND, Settings
from tests.support.linkstates import LinkStates

EXACT = Settings(gain=0.0, gain_ms=0.0, hold_down=0.0, threshold=0.0, floor_ms=0.0)

FAST = partial(settings, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # shrinking takes minutes

LAYOUTS = (
    {f"n{i}": "" for i in range(6)},
    {f"n{i}": "ab"[i % 2] for i in range(7)},
    {f"n{i}": ("w/a", "w/b", "e/a", "e/b")[i % 4] for i in range(9)},
    {f"n{i}": ("w/a/1", "w/a/2", "w/b/1", "e/a/1")[i % 4] for i in range(10)},
    {f"n{i}": ("w/a", "w/a", "w/b", "e/c")[i % 4] for i in range(8)},
)

Act = tuple[str, int, int]
acts = st.lists(
    st.tuples(st.sampled_from(("link", "link", "link", "cut", "kill", "start", "some", "wait", "suspect")),
              st.integers(0, 99), st.integers(0, 99)),
    min_size=8, max_size=60,
)  # fmt: skip


# Three parts of a unit that called each other gone, and went on to do so.
ACCUSERS: list[Act] = [
    ("link", 40, 18), ("cut", 11, 81), ("link", 43, 98), ("link", 66, 98), ("suspect", 91, 66), ("link", 12, 60),
    ("link", 98, 29), ("some", 46, 11), ("suspect", 79, 13), ("link", 44, 67), ("link", 62, 6), ("wait", 0, 92),
    ("wait", 80, 23), ("suspect", 8, 14), ("link", 37, 4), ("link", 57, 81), ("some", 54, 13), ("link", 30, 43),
    ("link", 79, 17), ("some", 79, 39), ("suspect", 53, 22), ("start", 89, 51), ("link", 35, 80), ("link", 23,
    30), ("some", 96, 73), ("link", 68, 80), ("kill", 9, 82), ("link", 66, 57), ("start", 53, 76), ("some", 85,
    89), ("link", 74, 34), ("wait", 86, 68), ("cut", 31, 65), ("some", 82, 19), ("cut", 88, 19), ("cut", 89, 40),
    ("start", 93, 89),
]  # fmt: skip


def play(mesh: LinkStates, script: list[Act]) -> None:
    """Let things happen; messages arrive in between, or not."""
    names = sorted(mesh.addresses)
    for act, i, j in script:
        a, b = names[i % len(names)], names[j % len(names)]
        links = list(mesh.links)
        if act == "link" and a != b and a in mesh.nodes and b in mesh.nodes:
            mesh.connect(a, b)
        elif act == "cut" and links:
            mesh.cut(links[i % len(links)])
        elif act == "kill" and a in mesh.nodes and len(mesh.nodes) > 1:
            mesh.kill(a)
        elif act == "start" and a not in mesh.nodes:
            mesh.start(a)
        elif act == "some":
            for _ in range(j):
                mesh.step()
        elif act == "wait":
            mesh.run(j * 10 * MS)
        elif act == "suspect" and links:
            link = links[i % len(links)]
            end = mesh.links[link][j % 2]
            mesh.put(end, mesh.nodes[end].suspect(link, True, mesh.now_ns))
            mesh.run(j * MS)
            mesh.put(end, mesh.nodes[end].suspect(link, False, mesh.now_ns))


@pytest.mark.spec("MR-011")
@pytest.mark.spec("MR-013")
@pytest.mark.spec("MR-014")
@pytest.mark.spec("MR-015")
@given(st.sampled_from(LAYOUTS), acts, st.integers(0, 1 << 32))
@example(LAYOUTS[2], ACCUSERS, 268)
@FAST(max_examples=150)
def test_quiet_maps_are_true(layout: dict[str, str], script: list[Act], seed: int) -> None:
    mesh = LinkStates(layout, EXACT, seed)
    play(mesh, script)
    mesh.settle()
    mesh.check_maps()
    assert not [notice for _, notice in mesh.notices if notice.kind == "refused"]


@pytest.mark.spec("MR-116")
@given(st.sampled_from(LAYOUTS), acts, st.integers(0, 1 << 32))
@FAST(max_examples=80)
def test_quiet_routes_are_the_shortest_of_the_true_graph(layout: dict[str, str], script: list[Act], seed: int) -> None:
    mesh = LinkStates(layout, EXACT, seed)
    play(mesh, script)
    costs: dict[bytes, float] = {}
    for _ in range(2):
        for link in mesh.links:
            costs[link] = float(mesh.rng.randrange(1, 40))
            mesh.measure(link, costs[link])
        mesh.settle()
    for name, state in mesh.nodes.items():
        true = mesh.true_distances(name, costs)
        for vertex_id in state.vertex_ids():
            route = state.routes.route("default", vertex_id)
            assert route is not None
            assert route.cost == pytest.approx(true[vertex_id])
            assert route.cost == pytest.approx(sum(costs[link] for link in route.links))
            assert route.latency_ms == pytest.approx(route.cost)
            assert route.vertex_ids[-1] == vertex_id
        assert len(true) == len(state.vertex_ids()) + 1


@given(st.sampled_from(LAYOUTS[1:]), acts, st.integers(0, 1 << 32))
@FAST(max_examples=40)
def test_refreshes_change_nothing_and_the_dead_are_forgotten(
    layout: dict[str, str], script: list[Act], seed: int
) -> None:
    mesh = LinkStates(layout, EXACT, seed)
    play(mesh, script)
    mesh.run(300 * SECOND)
    mesh.check_maps()
    originators = {name: set() for name in mesh.nodes}
    for name, state in mesh.nodes.items():
        originators[name] = {key[3] for key in state.database.entries}
        assert originators[name] <= mesh.nodes.keys(), name
    before = len(mesh.rerouted)
    mesh.run(120 * SECOND)
    assert len(mesh.rerouted) == before
