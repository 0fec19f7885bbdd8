"""The law of routes with filters, and that topics without any pay nothing for those of others (record 0051)."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
from hypothesis import given

from chappe.engine._engine import Engine
from tests.model.queues import EVENT, TOPIC, frame
from tests.model.routes import Subscription, resolve

subscriptions = st.lists(
    st.builds(Subscription, st.integers(0, 5), st.sampled_from(["a", "b"]), st.just(""), st.integers(0, 3)), max_size=12
)


@given(subscriptions, st.frozensets(st.integers(1, 3)))
def test_a_port_gets_an_event_once_if_it_asked_for_all_or_a_filter_lets_it_in(
    found: list[Subscription], matching: frozenset[int]
) -> None:
    route = resolve(found, lambda pattern: pattern == "a")
    got = route.receivers(matching)
    assert len(got) == len(set(got))
    assert set(got) == {
        each.port for each in found if each.pattern == "a" and (not each.filter or each.filter in matching)
    }
    assert not {port for port, _ in route.filtered} & set(route.plain), "whoever gets every event has no filter asked"
    assert got[: len(route.plain)] == route.plain


@given(subscriptions)
def test_without_filters_nothing_depends_on_the_event(found: list[Subscription]) -> None:
    route = resolve([each._replace(filter=0) for each in found], lambda pattern: True)
    assert not route.has_filtered
    assert {route.receivers(()), route.receivers((1, 2, 3))} == {route.plain}


def test_a_run_of_a_plain_topic_takes_one_decision_however_many_subscriptions_others_have() -> None:
    """The steps of the topic table count its work: after the first event a run of any length adds none."""
    spent = []
    for others in (0, 2000):
        engine = Engine(seed=1)
        publisher, subscriber = engine.open_port(issuer=b"p" * 16), engine.open_port(issuer=b"s" * 16)
        for number in range(others):
            engine.topics.subscribe(subscriber, f"other/{number}/#")
        engine.topics.subscribe(subscriber, "plain/a")
        engine.feed(publisher, frame(TOPIC, struct.pack(">IBB", 1, ord("s"), 0) + b"plain/a"))
        events = [frame(EVENT, struct.pack(">III", 1, 3 << 24, sequence) + b"x") for sequence in range(1, 402)]
        engine.feed(publisher, events[0])
        before = engine.topics.steps()
        engine.feed(publisher, b"".join(events[1:]))
        spent.append(engine.topics.steps() - before)
        assert engine.port_counters(subscriber)["events_out"] == 401
    assert spent == [0, 0]
