"""For any table changes, modes, routes and input cut at any byte, the engine gives what the slow model gives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.property import engine_walk
from tests.property.engine_frames import (
    TOPICS,
    client_bytes,
    patterns,
    peer_bytes,
    source_routes,
    variables,
    whole_trains,
)
from tests.property.twins import CLIENTS, PEERS, Twins

ports = st.integers(0, 6)
peers = st.sampled_from(PEERS)
cuts = st.lists(st.integers(0, 400), max_size=4)
# one next hop a port: runs of two source routes to one port would be mixed otherwise than single events
next_hops = st.lists(
    st.tuples(st.sampled_from([*PEERS, 0, 9]), source_routes), max_size=3, unique_by=lambda next_hop: next_hop[0]
)
served = st.sampled_from([None, None, None, (), ("g",), ("g", "h")])
answers = st.tuples(st.booleans(), next_hops, st.sampled_from([0, 0, 10**7]), served)
subscriptions = st.lists(st.tuples(ports, patterns, st.sampled_from(["", "", "g", "h"])), max_size=8)


class EngineAgrees(RuleBasedStateMachine):
    layout = "sparse"

    @initialize(
        subscriptions=subscriptions,
        published=st.dictionaries(st.sampled_from(TOPICS), answers, max_size=4),
        forwarded=st.dictionaries(source_routes, answers, max_size=4),
        inputs=st.lists(ports, max_size=3),
        paths=st.lists(st.tuples(ports, st.sampled_from([0, 20]), st.integers(0, 6)), max_size=4),
    )
    def start(self, subscriptions: Any, published: Any, forwarded: Any, inputs: Any, paths: Any) -> None:
        self.twins = Twins(self.layout)
        self.twins.published.update(published)
        self.twins.forwarded.update(forwarded)
        for subscription in subscriptions:
            self.twins.subscribe(*subscription)
        self.twins.set_variable(1, (1, 10), inputs)
        for number, (port, interval, priority) in enumerate(paths):
            self.twins.setup_path(port, 1, number, interval, priority, 0xFFFF, False)

    @rule(port=st.sampled_from(CLIENTS), data=client_bytes, cuts=cuts)
    def feed_client(self, port: int, data: bytes, cuts: list[int]) -> None:
        self.twins.feed_cut(port, data, cuts)

    @rule(port=peers, data=peer_bytes | whole_trains, cuts=cuts)
    def feed_peer(self, port: int, data: bytes, cuts: list[int]) -> None:
        self.twins.feed_cut(port, data, cuts)

    @rule(port=ports, data=peer_bytes, place=st.integers(0, 300), value=st.integers(0, 255))
    def feed_damaged(self, port: int, data: bytes, place: int, value: int) -> None:
        self.twins.feed_damaged(port, data, place, value)

    @rule(port=ports, pattern=patterns, group=st.sampled_from(["", "", "g", "h"]), on=st.booleans())
    def subscribe(self, port: int, pattern: str, group: str, on: bool) -> None:
        (self.twins.subscribe if on else self.twins.unsubscribe)(port, pattern, group)

    @rule(variable=variables, rate=st.sampled_from([(1, 10), (3, 100), (0, 1)]), inputs=st.lists(ports, max_size=3))
    def set_variable(self, variable: int, rate: tuple[int, int], inputs: list[int]) -> None:
        self.twins.set_variable(variable, rate, inputs)

    @rule(
        port=ports,
        variable=variables,
        path=st.integers(0, 3),
        interval=st.sampled_from([0, 10, 20, 30, 60]),
        priority=st.integers(0, 6),
        modes=st.sampled_from([0xFFFF, 1, 2, 3]),
        present=st.booleans(),
    )
    def setup_path(self, **setup: Any) -> None:
        self.twins.setup_path(**setup)

    @rule(action=st.integers(0, 3), variable=variables, port=ports, level=st.integers(0, 2), on=st.booleans())
    def change_status(self, action: int, variable: int, port: int, level: int, on: bool) -> None:
        if action == 0:
            self.twins.terminate_path(variable, level)
        elif action == 1:
            self.twins.flood(variable, level or 1, 0xFFFF if level == 2 else 1, on)
        elif action == 2:
            self.twins.set_level(port, level)
        else:
            self.twins.switch_mode(level)

    @rule(topic=st.sampled_from(TOPICS), by=source_routes, published=answers | st.none(), forwarded=answers | st.none(),
          changed=st.booleans())  # fmt: skip
    def change_routes(self, topic: bytes, by: bytes, published: Any, forwarded: Any, changed: bool) -> None:
        self.twins.published[topic], self.twins.forwarded[by] = published, forwarded
        if changed:
            self.twins.forwarding_changed()

    @rule(step=st.sampled_from([1, 10**7, 10**8]), release=st.booleans())
    def time_passes(self, step: int, release: bool) -> None:
        self.twins.time_passes(step)
        if release:
            self.twins.release_held()

    @rule(port=ports, share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def write_some(self, port: int, share: float) -> None:
        self.twins.write_some(port, share)

    @rule(port=ports)
    def write_all(self, port: int) -> None:
        self.twins.write_all(port)

    @rule(port=ports, action=st.integers(0, 2), first=st.booleans())
    def reconnect(self, port: int, action: int, first: bool) -> None:
        if action == 0:
            self.twins.park(port)
        elif action == 1:
            self.twins.resume(port)
        else:
            self.twins.replace(port, first)

    @rule(port=peers, action=st.integers(0, 2), number=st.integers(0, 3), next_hops=next_hops)
    def serve_peer(self, port: int, action: int, number: int, next_hops: list[tuple[int, bytes]]) -> None:
        if action == 0:
            self.twins.confirm(port)
        elif action == 1:
            self.twins.send_train(port, number, [40, 276, 500, 1500][number])
        else:
            self.twins.lose(port, number + 1, next_hops)

    @invariant()
    def same_counters(self) -> None:
        if hasattr(self, "twins"):
            self.twins.check()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.twins.finish()


class EngineAgreesClose(EngineAgrees):
    layout = "close"


EngineAgrees.TestCase.settings = EngineAgreesClose.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestSparse = pytest.mark.spec("GS-066")(EngineAgrees.TestCase)
TestClose = pytest.mark.spec("GS-065")(EngineAgreesClose.TestCase)


@pytest.mark.parametrize("layout", ["sparse", "close"])
def test_long_walks_with_much_traffic_agree(layout: str) -> None:
    """Hypothesis finds short paths to a difference; these walks come to states that take hundreds of steps."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        twins = Twins(layout)
        engine_walk.walk(twins, random.Random(seed), steps=250)
        seen += Counter(twins.engine.counters())
    never = {
        "held_early",
        "released_early",
        "control_out",
        "drop_no_room",
        "drop_stale",
        "drop_waited",
        "drop_incapable",
        "drop_bad_parcel",
        "drop_hops",
        "drop_credit",
        "drop_blocked",
        "parcels_out",
        "parcels_returned",
        "parcel_questions",
        "drop_no_memory",
        "throttled",
    }  # tested apart
    assert {name for name, count in twins.engine.counters().items() if not seen[name]} == never
