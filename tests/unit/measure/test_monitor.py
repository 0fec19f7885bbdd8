from __future__ import annotations

import re
from typing import Any

import pytest

from chappe.machine import Publish
from chappe.measure import messages
from chappe.measure.messages import Advice, Announce, Change, ControlReply, ControlRequest
from chappe.measure.monitor import BATCH, KEPT_NS, Advised, Interval, Monitor, Now, Output, Settings, Switch
from chappe.measure.record import Record, decode
from tests.support.records import LINK, NOW, SECOND, links, record

CONTROL = "PBR/Control/east/n1"


def monitor(**settings: Any) -> Monitor:
    return Monitor("n1", Settings(realm="east", **settings))


def order(monitor: Monitor, action: str, **fields: Any) -> tuple[list[Output], ControlReply]:
    request = ControlRequest(id="7", aggregator="agg", node="n1", action=action, **fields)  # type: ignore[arg-type]
    *outputs, last = monitor.received(CONTROL, messages.encode(request), 0)
    assert isinstance(last, Publish)
    assert last.topic == "PBR/Control/east/n1/Reply"
    return outputs, messages.decode(last.body, ControlReply)


def reported(monitor: Monitor, values: list[float], **fields: Any) -> list[float | None]:
    """The latencies that were reported of one a second."""
    found: list[float | None] = []
    for second, value in enumerate(values):
        for publish in monitor.reading(record(latency_ms=value, **fields), second * SECOND):
            found += [each.latency_ms for each in decode(publish.body, NOW + SECOND)[0]]
    return found


def announce(monitor: Monitor, name: str, now_ns: int = 0, **fields: Any) -> None:
    told = Announce(name=name, realm=fields.pop("realm", "east"), **fields)
    assert monitor.received("PBR/Aggregator/Announce/east", messages.encode(told), now_ns) == []


def test_a_reading_is_reported_as_the_node_and_realm_it_is_of() -> None:
    (publish,) = monitor(user_group="A").reading(record(node="somebody", realm="elsewhere"), 0)
    assert (publish.topic, publish.content_type) == ("PBR/Report/east/n1", "application/x-ndjson")
    ((found,), _) = decode(publish.body, NOW)
    assert (found.node, found.realm, found.user_group) == ("n1", "east", "A")


def test_many_readings_are_few_events_of_bounded_size() -> None:
    published = monitor().readings(links(3 * BATCH + 1), 0)
    assert len(published) == 4
    assert max(len(each.body) for each in published) < 1 << 20
    assert sum(len(decode(each.body, NOW + SECOND)[0]) for each in published) == 3 * BATCH + 1


@pytest.mark.spec("MR-083")
def test_a_node_may_choose_not_to_report() -> None:
    silent = monitor(enabled=False)
    assert silent.topics == ()
    assert silent.reading(record(), 0) == []
    assert monitor().topics == ("PBR/Aggregator/Announce/east", CONTROL)


@pytest.mark.spec("MR-086")
def test_reports_on_absolute_and_percentage_change() -> None:
    values = [100.0, 104.0, 106.0, 100.0, 111.0, 111.0]
    percent = monitor()
    reported(percent, values[:1])
    order(percent, "report_only", change=Change(kind="percent", value=5))
    assert reported(percent, values[1:]) == [106.0, 100.0, 111.0]
    absolute = monitor()
    reported(absolute, values[:1])
    order(absolute, "report_only", change=Change(kind="absolute", value=10))
    assert reported(absolute, values[1:]) == [111.0]


def test_a_link_without_change_is_reported_now_and_then() -> None:
    watched = monitor(silence_s=10)
    reported(watched, [100.0])
    order(watched, "report_only", change=Change(kind="percent", value=5))
    assert len(reported(watched, [100.0] * 31)) == 3


def test_a_metric_that_appears_or_vanishes_is_a_change() -> None:
    watched = monitor()
    watched.reading(record(latency_ms=1.0), 0)
    order(watched, "report_only", change=Change(kind="percent", value=50))
    assert watched.reading(record(latency_ms=1.0), 1) == []
    assert watched.reading(record(latency_ms=1.0, loss=0.5), 2)
    assert watched.reading(record(latency_ms=1.0), 3)


@pytest.mark.spec("MR-085")
def test_an_aggregator_stops_starts_and_paces_what_is_measured() -> None:
    watched = monitor()
    watched.readings([record(peer="b"), record(uri="udp://c", peer="c")], 0)
    other = record(uri="udp://c").link
    assert order(watched, "stop", links=("udp://*",)) == (
        [Switch(other, "", False)], ControlReply(id="7", node="n1", applied=(other,)),
    )  # fmt: skip
    assert order(watched, "start", links=("c",), metrics=("loss", "jitter"))[0] == [
        Switch(other, "loss", True), Switch(other, "jitter", True),
    ]  # fmt: skip
    outputs, reply = order(watched, "set_interval", interval_ms=250)
    assert outputs == [Interval(LINK, 250_000_000), Interval(other, 250_000_000)]
    assert reply.applied == (LINK, other)


@pytest.mark.spec("MR-072", "MR-085")
def test_an_aggregator_has_a_link_measured_now_and_hears_of_it_even_if_nothing_changed() -> None:
    watched = monitor()
    watched.reading(record(), 0)
    order(watched, "report_only", change=Change(kind="percent", value=10))
    assert watched.reading(record(), 1) == []
    assert order(watched, "measure") == ([Now(LINK)], ControlReply(id="7", node="n1", applied=(LINK,)))
    assert len(watched.reading(record(), 2)) == 1
    assert watched.reading(record(), 3) == []


@pytest.mark.spec("MR-085")
def test_an_aggregator_asks_for_certain_metrics_only() -> None:
    watched = monitor()
    watched.reading(record(), 0)
    order(watched, "report_only", metrics=("loss",))
    (publish,) = watched.reading(record(latency_ms=3.0, loss=0.25, cost=8.0), 1)
    ((found,), _) = decode(publish.body, NOW)
    assert (found.loss, found.latency_ms, found.cost) == (0.25, None, None)
    order(watched, "report_only")
    (publish,) = watched.reading(record(latency_ms=3.0, loss=0.25, cost=8.0), 2)
    assert decode(publish.body, NOW)[0][0].cost == 8.0


@pytest.mark.parametrize(
    ("action", "fields", "reason"),
    [
        ("stop", {"links": ("sctp://*",)}, r"sctp://\*: no link of n1 is measured under that name"),
        ("set_interval", {}, "interval_ms: None is not between 1 and"),
        ("set_interval", {"interval_ms": 1e12}, "interval_ms: 1000000000000.0 is not between"),
        ("stop", {"metrics": ("cost",)}, "cost is computed from the others"),
        ("measure", {"metrics": ("loss",)}, "a probe measures all that are on"),
        ("stop", {"change": Change(kind="percent", value=1)}, "change: belongs to report_only"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(action: str, fields: dict[str, Any], reason: str) -> None:
    watched = monitor()
    watched.reading(record(), 0)
    outputs, reply = order(watched, action, **fields)
    assert outputs == []
    assert reply.applied == ()
    assert re.search(reason, reply.refused[0]), reply.refused
    assert watched.refused == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"id": "1"}', b'{"id":"1","aggregator":"a","node":"n1","action":"explode"}', b"x" * (1 << 21)],
)
def test_malformed_orders_change_nothing(body: bytes) -> None:
    watched = monitor()
    watched.reading(record(), 0)
    assert watched.received(CONTROL, body, 0) == []
    assert watched.refused == 1


def test_an_order_for_another_node_is_not_carried_out() -> None:
    watched = monitor()
    watched.reading(record(), 0)
    request = ControlRequest(id="7", aggregator="agg", node="n2", action="stop")
    assert watched.received(CONTROL, messages.encode(request), 0) == []


class TestChoice:
    @pytest.mark.spec("MR-082")
    def test_the_least_loaded_aggregator_of_the_realm_is_used(self) -> None:
        watched = monitor(aggregator="static")
        assert watched.aggregator(0) == "static"
        announce(watched, "busy", load=5000)
        announce(watched, "idle", load=100)
        announce(watched, "foreign", realm="west")
        announce(watched, "elsewhere", nodes=("m*",))
        announce(watched, "reader", kind="consumer")
        assert watched.aggregator(0) == "idle"
        (publish,) = watched.reading(record(), 0)
        assert publish.topic == "PBR/Report/east/n1/idle"

    def test_it_stays_while_it_is_heard_and_moves_when_it_is_not(self) -> None:
        watched = monitor()
        announce(watched, "one", every_s=5)
        assert watched.aggregator(0) == "one"
        announce(watched, "two", 10 * SECOND, every_s=5)
        announce(watched, "one", 10 * SECOND, every_s=5, load=9000)
        assert watched.aggregator(20 * SECOND) == "one"
        announce(watched, "two", 20 * SECOND, every_s=5)
        assert watched.aggregator(26 * SECOND) == "two"
        assert watched.aggregator(60 * SECOND) == ""

    def test_nodes_are_spread_over_aggregators_of_about_the_same_load(self) -> None:
        chosen = []
        for number in range(60):
            watched = Monitor(f"n{number}", Settings(realm="east"))
            for name in ("one", "two", "three"):
                announce(watched, name, load=5)
            chosen.append(watched.aggregator(0))
        assert all(chosen.count(name) > 8 for name in ("one", "two", "three"))


class TestAdvice:
    def test_it_is_not_taken_unless_the_node_wants_it(self) -> None:
        watched = monitor()
        watched.reading(record(), 0)
        advice = Advice(link=LINK, source="foreign:x", stamp_ns=NOW, weight=0.5, latency_ms=3.0)
        assert watched.received("PBR/Advice/east/n1", messages.encode(advice), 0) == []
        assert watched.refused == 1

    @pytest.mark.spec("MR-079")
    def test_its_weight_is_bounded_and_its_link_must_be_known(self) -> None:
        watched = monitor(advice=0.3)
        assert watched.topics[-1] == "PBR/Advice/east/n1"
        watched.reading(record(), 0)
        advice = Advice(link=LINK, source="foreign:x", stamp_ns=NOW, weight=0.5, latency_ms=3.0)
        (found,) = watched.received("PBR/Advice/east/n1", messages.encode(advice), 0)
        assert isinstance(found, Advised)
        assert found.advice.weight == 0.3
        watched.link_lost(LINK, SECOND)
        watched.link_lost("another", SECOND + KEPT_NS)
        assert watched.received("PBR/Advice/east/n1", messages.encode(advice), 0) == [found], "it may come back"
        watched.link_lost("another", 2 * SECOND + KEPT_NS)
        assert watched.received("PBR/Advice/east/n1", messages.encode(advice), 0) == []

    def test_what_is_known_of_a_link_outlives_a_loss(self) -> None:
        watched = monitor(advice=0.3)
        watched.reading(record(), 0)
        watched.link_lost(LINK, 0)
        watched.reading(record(), SECOND)
        watched.link_lost("another", 2 * KEPT_NS)
        advice = Advice(link=LINK, source="foreign:x", stamp_ns=NOW, weight=0.5, latency_ms=3.0)
        assert watched.received("PBR/Advice/east/n1", messages.encode(advice), 0) != []


def test_a_record_is_what_it_was() -> None:
    """Every field that a node gives is reported."""
    given: Record = links(1)[0]
    (publish,) = monitor().reading(given, 0)
    ((found,), _) = decode(publish.body, NOW + SECOND)
    assert found == record(**{**{name: getattr(given, name) for name in given.__struct_fields__}, "node": "n1"})
