"""A subscription is active from the moment it was made: what was published before is not for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.client.session import ahead_ns
from chappe.wire.events import Event, TopicName
from tests.support.clientpeer import Peer, event, issuer, topic

SLACK_NS = 30_000_000
T_NS = 1_700_000_000_000_000_000


def stamped(sequence: int, created: int | None, **items: object) -> bytes:
    return event(0, sequence, b"%d" % sequence, created=created, **items)


def fed(since_ns: int, *frames: bytes, group: str = "") -> Subscription:
    core = ClientCore()
    Peer(core)
    subscription = Subscription("a", group=group)
    subscription.since_ns = since_ns
    core.add_subscription(subscription)
    core.feed(issuer() + topic(0, "a", group=group) + b"".join(frames))
    return subscription


def taken(subscription: Subscription) -> list[bytes]:
    return [message.body for message in subscription.take_nowait()]


@given(st.integers(-(1 << 61), 1 << 61), st.integers(1, 1 << 61))
def test_an_event_is_older_only_if_it_is_so_by_more_than_clocks_differ(created: int, since: int) -> None:
    subscription = fed(since, stamped(1, created), stamped(2, None))
    older = created < since - SLACK_NS
    assert taken(subscription) == ([b"2"] if older else [b"1", b"2"])
    assert (subscription.older, subscription.received) == (older, 2 - older)


def test_what_was_made_before_is_left_out_wherever_its_stamp_stands() -> None:
    early, late = T_NS - 10 * SLACK_NS, T_NS + 1
    subscription = fed(
        T_NS,
        stamped(1, early, correlation=7, content_type="text/plain"),
        stamped(2, early, reply=TopicName("answers")),
        stamped(3, late, properties={"a": 1}),
        stamped(4, None, content_type="text/plain"),
    )
    assert taken(subscription) == [b"3", b"4"]
    assert subscription.older == 2


def test_one_without_a_beginning_takes_all() -> None:
    assert taken(fed(0, stamped(1, 1), stamped(2, None))) == [b"1", b"2"]


def test_a_new_member_of_a_group_takes_what_the_others_asked_for() -> None:
    assert taken(fed(T_NS, stamped(1, 1), group="workers")) == [b"1"]


def published(core: ClientCore, **items: object) -> Event:
    """The event as it leaves."""
    peer = Peer(core)
    assert core.publish("a", b"body", **items)  # type: ignore[arg-type]
    peer.read()
    return peer.events[-1]


def stamping(ahead: int = 0) -> ClientCore:
    core = ClientCore()
    core.live_clock, core.stamping, core.ahead_ns = False, True, ahead
    core.clock(core.mono_ns, T_NS)
    return core


def test_events_are_stamped_by_the_clock_of_the_node() -> None:
    assert published(stamping(ahead=5)).created == T_NS + 5
    assert published(ClientCore()).created is None


def test_a_stamp_that_was_given_stays_and_other_items_stay_beside_it() -> None:
    assert published(stamping(), created=1).created == 1
    told = published(stamping(), correlation=9, reply="r")
    assert (told.created, told.correlation, told.reply) == (T_NS, 9, TopicName("r"))
    told = published(stamping(), content_type="text/plain", properties={"x": True})
    assert (told.created, told.content_type, told.properties) == (T_NS, "text/plain", {"x": True})
    assert told.body == b"body"


def test_the_clock_of_the_node_counts_only_where_the_way_of_its_answer_does_not_explain_the_difference() -> None:
    assert ahead_ns(1_000, 0, 2_000) == 0  # it said nothing
    assert ahead_ns(1_000, 1_400, 2_000) == 0
    assert ahead_ns(1_000, 2_001, 2_000) == 501
    assert ahead_ns(1_000, 900, 2_000) == -600
    assert ahead_ns(5_000, 10_000, 4_000) == 5_000  # our own clock was set meanwhile
