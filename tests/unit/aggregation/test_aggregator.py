from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.aggregation.access import Access, View
from chappe.aggregation.aggregator import FORGET_NS, Aggregator, Answered, Keep, KeepEvent, Notice, Output, Settings
from chappe.aggregation.aggregator import StandingOrder as Standing
from chappe.aggregation.alerts import Alerts, Rule
from chappe.errors import ConfigError
from chappe.measure import messages
from chappe.measure.messages import Advice, AlertEvent, Announce, Change, ControlReply, ControlRequest, Publish
from chappe.measure.messages import RealmSnapshot as Snapshot
from chappe.measure.monitor import Monitor
from chappe.measure.monitor import Settings as MonitorSettings
from chappe.measure.record import FIELDS, Record, RecordError, encode, link_of
from tests.support.records import LINK, NOW, SECOND, links, record

T = TypeVar("T")


def aggregator(views: tuple[View, ...] = (), rules: tuple[Rule, ...] = (), **settings: Any) -> Aggregator:
    given = {"name": "agg", "realm": "east", **settings}
    return Aggregator(Settings(**given), Access(views), Alerts(rules))


def kinds(outputs: list[Output], kind: type[T]) -> list[T]:
    return [output for output in outputs if isinstance(output, kind)]


def report(of: Aggregator, *records: Record, node: str = "a", now_ns: int = NOW) -> list[Output]:
    return of.receive(f"PBR/Report/east/{node}/agg", encode(records), now_ns)


def published(outputs: list[Output], topic: str) -> list[bytes]:
    return [output.body for output in kinds(outputs, Publish) if output.topic == topic]


@pytest.mark.spec("MR-081")
def test_it_collects_from_many_nodes() -> None:
    of = aggregator()
    for number in range(20):
        told = record(node=f"n{number}", uri=f"tcp://{number}")
        assert kinds(report(of, told, node=f"n{number}"), Keep) == [Keep([told])]
    assert len(of.newest) == 20
    assert of.topics[:2] == ("PBR/Report/east/+/agg", "PBR/Report/east/+")


def test_a_node_speaks_for_itself_and_its_realm_only() -> None:
    of = aggregator()
    outputs = report(of, record(node="b"), record(realm="west"), record(uri="good"))
    assert kinds(outputs, Keep) == [Keep([record(uri="good")])]
    assert [notice.reason for notice in kinds(outputs, Notice)] == [
        "a record of b in east came from a", "a record of a in west came from a",
    ]  # fmt: skip
    assert of.refused == 2


def test_bad_lines_are_refused_with_the_reason() -> None:
    of = aggregator()
    body = encode([record(deviation_ms=-1.2), record()]) + b"nonsense\n"
    outputs = of.receive("PBR/Report/east/a", body, NOW)
    assert kinds(outputs, Keep) == [Keep([record()])]
    assert "line 1: deviation_ms: -1.2 is negative" in kinds(outputs, Notice)[0].reason


@pytest.mark.parametrize("topic", ["x", "PBR/Report/west/a", "PBR/Snapshot/west/all", "PBR/Report/east/a/agg/more"])
def test_what_was_not_asked_for_is_refused(topic: str) -> None:
    of = aggregator()
    assert kinds(of.receive(topic, b"{}", NOW), Notice) == [Notice(topic, "nothing of this topic is read here")]


def test_an_old_record_is_kept_but_does_not_replace_a_newer_one() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    report(of, record(stamp_ns=NOW, latency_ms=1.0))
    outputs = report(of, record(stamp_ns=NOW - SECOND, latency_ms=100.0))
    assert len(kinds(outputs, Keep)) == 1
    assert kinds(outputs, KeepEvent) == []
    assert of.newest[LINK, "a"].latency_ms == 1.0


@pytest.mark.spec("MR-099")
def test_an_alert_leaves_as_an_event() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    outputs = report(of, record(latency_ms=100.0))
    (body,) = published(outputs, "PBR/Alert/east")
    assert messages.decode(body, AlertEvent).rule == "slow"
    assert [kept.event.state for kept in kinds(outputs, KeepEvent)] == ["raised"]


class TestControl:
    @pytest.mark.spec("MR-085")
    def test_an_order_goes_to_a_monitor_and_its_answer_comes_back(self) -> None:
        of = aggregator()
        watched = Monitor("n1", MonitorSettings(realm="east"))
        watched.reading(record(), 0)
        id, outputs = of.order("n1", "report_only", NOW, change=Change(kind="percent", value=10))
        (sent,) = kinds(outputs, Publish)
        (answer,) = watched.received(sent.topic, sent.body, 0)
        assert isinstance(answer, Publish)
        (answered,) = kinds(of.receive(answer.topic, answer.body, NOW), Answered)
        assert answered.request.id == id
        assert answered.reply is not None
        assert answered.reply.applied == (LINK,)
        assert of.receive(answer.topic, answer.body, NOW) == []  # only once

    def test_nobody_answers_for_another(self) -> None:
        of = aggregator()
        id, _ = of.order("n1", "stop", NOW)
        outputs = of.receive("PBR/Control/east/n2/Reply", messages.encode(ControlReply(id=id, node="n2")), NOW)
        assert kinds(outputs, Answered) == []
        assert "n2 answers for n2 an order to n1" in kinds(outputs, Notice)[0].reason
        late = kinds(of.tick(NOW + 31 * SECOND), Answered)
        assert [(answered.request.node, answered.reply) for answered in late] == [("n1", None)]

    def test_an_order_that_is_none_is_an_error(self) -> None:
        of = aggregator()
        with pytest.raises(RecordError, match="no order: Invalid enum value 'explode'"):
            of.order("n1", "explode", NOW)

    def test_too_many_orders_without_an_answer_do_not_end_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chappe.aggregation.aggregator.ORDERS", 1)
        of = aggregator(orders=(Standing(action="stop"),))
        report(of, record(node="n1"), node="n1")
        outputs = report(of, record(node="n2"), node="n2")
        assert len(kinds(outputs, Keep)) == 1
        assert "1 orders have no answer yet" in kinds(outputs, Notice)[0].reason

    def test_standing_orders_go_to_each_node_that_reports(self) -> None:
        change = Change(kind="percent", value=10)
        of = aggregator(orders=(Standing(action="report_only", nodes=("n*",), change=change),))
        first = report(of, record(node="n1"), node="n1")
        (body,) = published(first, "PBR/Control/east/n1")
        assert messages.decode(body, ControlRequest).change == change
        assert published(report(of, record(node="n1"), node="n1"), "PBR/Control/east/n1") == []
        assert published(report(of, record(node="m1"), node="m1"), "PBR/Control/east/m1") == []
        later = NOW + 3600 * SECOND  # it may have started anew
        again = report(of, record(node="n1", stamp_ns=later), node="n1", now_ns=later)
        assert len(published(again, "PBR/Control/east/n1")) == 1


class TestRealms:
    VIEW = View(group="partners", user_groups=("A",), metrics=("latency_ms",), exchange=True)

    def exchange(self, of: Aggregator, now_ns: int = NOW) -> list[Snapshot]:
        return [messages.decode(body, Snapshot) for body in published(of.tick(now_ns), "PBR/Snapshot/east/partners")]

    @pytest.mark.spec("MR-087", "MR-088", "MR-105")
    def test_another_realm_gets_what_its_group_may_see(self) -> None:
        east = aggregator((self.VIEW, View(group="staff", user_groups=("*",))))
        report(
            east, record(uri="1", latency_ms=1.0, cost=2.0), record(uri="2", user_group="A", latency_ms=2.0),
            record(uri="3", user_group="secret", latency_ms=3.0),
        )  # fmt: skip
        (snapshot,) = self.exchange(east)
        assert [(each.uri, each.latency_ms, each.cost) for each in snapshot.records] == [
            ("1", 1.0, None),
            ("2", 2.0, None),
        ]
        west = aggregator(realm="west", name="west-agg", follows=(("east", "partners"),))
        assert west.topics[-1] == "PBR/Snapshot/east/partners"
        outputs = west.receive("PBR/Snapshot/east/partners", messages.encode(snapshot), NOW)
        assert kinds(outputs, Keep) == [Keep(list(snapshot.records))]

    @pytest.mark.spec("MR-088")
    def test_without_a_view_that_says_so_nothing_leaves_the_realm(self) -> None:
        east = aggregator((View(group="staff", user_groups=("*",)),))
        report(east, record())
        assert [output for output in kinds(east.tick(NOW), Publish) if "Snapshot" in output.topic] == []

    @pytest.mark.spec("MR-089")
    def test_a_realm_that_is_not_followed_is_not_read(self) -> None:
        west = aggregator(realm="west", follows=(("east", "partners"),))
        snapshot = Snapshot(realm="north", aggregator="x", group="partners", generated_ns=NOW, records=(record(),))
        outputs = west.receive("PBR/Snapshot/north/partners", messages.encode(snapshot), NOW)
        assert kinds(outputs, Keep) == []

    def test_a_realm_speaks_for_its_own_links_only_and_is_not_passed_on(self) -> None:
        west = aggregator((self.VIEW,), realm="west", follows=(("east", "partners"),))
        records = (record(), record(uri="2", realm="west"), record(uri="3", latency_ms=-1.0))
        snapshot = Snapshot(realm="east", aggregator="x", group="partners", generated_ns=NOW, records=records)
        outputs = west.receive("PBR/Snapshot/east/partners", messages.encode(snapshot), NOW)
        assert kinds(outputs, Keep) == [Keep([record()])]
        assert [notice.reason for notice in kinds(outputs, Notice)] == [
            "east speaks for a link of west", "latency_ms: -1 is negative",
        ]  # fmt: skip
        assert published(west.tick(NOW), "PBR/Snapshot/west/partners") == []
        forged = Snapshot(realm="north", aggregator="x", group="partners", generated_ns=NOW, records=records)
        outputs = west.receive("PBR/Snapshot/east/partners", messages.encode(forged), NOW)
        assert "a snapshot of north on the topic of east" in kinds(outputs, Notice)[0].reason

    def test_a_large_realm_is_told_in_parts_and_then_what_has_changed(self) -> None:
        east = aggregator((self.VIEW,))
        for each in links(2500):
            report(east, each, node=each.node)
        parts = self.exchange(east)
        assert [(each.part, each.parts, len(each.records)) for each in parts] == [
            (0, 3, 1000),
            (1, 3, 1000),
            (2, 3, 500),
        ]
        assert max(len(messages.encode(each)) for each in parts) < 1 << 20
        report(east, record(uri="new", stamp_ns=NOW + SECOND))
        (changed,) = self.exchange(east, NOW + 60 * SECOND)
        assert [each.uri for each in changed.records] == ["new"]
        assert sum(len(self.exchange(east, NOW + 60 * SECOND * turn)) for turn in range(2, 10)) == 0
        assert len(self.exchange(east, NOW + 600 * SECOND)) == 3  # everything again, for those who came later


@pytest.mark.spec("MR-130")
def test_it_keeps_a_directory_of_producers_and_consumers() -> None:
    of = aggregator()
    report(of, record(node="n1"), node="n1")
    for name, kind, realm in (("agg-2", "aggregator", "east"), ("portal", "consumer", "west")):
        told = Announce(name=name, kind=kind, realm=realm, wants=(("east", "partners"),))  # type: ignore[arg-type]
        of.receive(f"PBR/Aggregator/Announce/{realm}", messages.encode(told), NOW)
    assert sorted(of.parties) == [
        ("aggregator", "agg-2", "east"), ("consumer", "portal", "west"), ("producer", "n1", "east"),
    ]  # fmt: skip
    assert of.parties["consumer", "portal", "west"].details["wants"] == (("east", "partners"),)
    forged = messages.encode(Announce(name="x", realm="north"))
    assert "on the topic of west" in kinds(of.receive("PBR/Aggregator/Announce/west", forged, NOW), Notice)[0].reason


def test_it_announces_itself_with_its_load() -> None:
    of = aggregator(nodes=("n*",), url="tcp://x:1")
    of.tick(NOW)
    for second in range(100):
        report(of, record(stamp_ns=NOW + second))
    of.committed(100)
    assert published(of.tick(NOW + SECOND), "PBR/Aggregator/Announce/east") == []
    (body,) = published(of.tick(NOW + 5 * SECOND), "PBR/Aggregator/Announce/east")
    told = messages.decode(body, Announce)
    assert (told.name, told.load, told.nodes, told.stored, told.url) == ("agg", 20.0, ("n*",), 100, "tcp://x:1")
    assert of.next_ns() == NOW + 10 * SECOND


@pytest.mark.spec("MR-079")
def test_foreign_measurements_of_configured_links_become_advice() -> None:
    of = aggregator(advises={LINK: ("n1", 0.4)})
    good = record(origin="foreign:pscheduler", latency_ms=12.0, loss=0.1)
    other = record(uri="other", origin="foreign:pscheduler", latency_ms=1.0)
    outputs = of.foreign([good, other, record(), record(origin="foreign:x", latency_ms=-1.0)], NOW)
    assert kinds(outputs, Keep) == [Keep([good, other])]
    (body,) = published(outputs, "PBR/Advice/east/n1")
    advice = messages.decode(body, Advice)
    assert (advice.link, advice.weight, advice.latency_ms, advice.loss) == (LINK, 0.4, 12.0, 0.1)
    assert [notice.reason for notice in kinds(outputs, Notice)] == [
        "origin: is not foreign",
        "latency_ms: -1 is negative",
    ]


def test_links_that_are_gone_are_forgotten_and_their_alerts_are_over() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    report(of, record(latency_ms=100.0))
    outputs = of.tick(NOW + FORGET_NS + SECOND)
    assert [kept.event.state for kept in kinds(outputs, KeepEvent)] == ["cleared"]
    assert of.newest == {}


def test_the_number_of_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.aggregation.aggregator.LINKS", 3)
    of = aggregator()
    report(of, *(record(uri=str(number), link=link_of(str(number))) for number in range(5)))
    assert len(of.newest) == 3
    assert of.refused == 2


def test_two_views_of_a_group_are_refused() -> None:
    with pytest.raises(ConfigError, match="view 'g': there are two views"):
        Access((View(group="g"), View(group="g")))
    assert Access().view("anybody").visible_part(record(user_group="A")) is None
    assert Access().view("anybody").visible_part(record()) == record()


TOPICS = ("PBR/Report/east/a", "PBR/Control/east/a/Reply", "PBR/Aggregator/Announce/east", "PBR/Snapshot/west/all")
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(FIELDS)), inner, max_size=5),
    max_leaves=8,
)


@given(st.sampled_from(TOPICS), st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_nothing_that_comes_breaks_it(topic: str, body: bytes) -> None:
    of = aggregator(follows=(("west", "all"),), rules=(Rule(name="slow", when="latency_ms > 80"),))
    watched = Monitor("a", MonitorSettings(realm="east", advice=0.5))
    report(of, record())
    outputs = of.receive(topic, body, NOW)
    assert kinds(outputs, Keep) == []
    assert of.newest == {(LINK, "a"): record()}
    for mine in watched.topics:
        assert watched.received(mine, body, 0) == []
