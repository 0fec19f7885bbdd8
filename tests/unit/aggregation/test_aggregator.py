from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.aggregation.access import Access, View
from chappe.aggregation.aggregator import FORGET_NS, Aggregator, ForeignRecords, Settings
from chappe.aggregation.aggregator import StandingOrder as Standing
from chappe.aggregation.alerts import Alerts, Rule
from chappe.errors import ConfigError
from chappe.machine import Append, Appended, Delivered, Effect, Log, Publish
from chappe.measure import messages
from chappe.measure.messages import Advice, AlertEvent, Announce, Change, ControlReply, ControlRequest
from chappe.measure.messages import RealmSnapshot as Snapshot
from chappe.measure.monitor import Monitor
from chappe.measure.monitor import Settings as MonitorSettings
from chappe.measure.record import FIELDS, Record, encode, link_of
from tests.support.records import LINK, NOW, SECOND, links, record

T = TypeVar("T")


def aggregator(views: tuple[View, ...] = (), rules: tuple[Rule, ...] = (), **settings: Any) -> Aggregator:
    given = {"name": "agg", "realm": "east", **settings}
    return Aggregator(Settings(**given), Access(views), Alerts(rules), lambda now_ns: now_ns)


def kinds(effects: list[Effect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


def report(of: Aggregator, *records: Record, node: str = "a", now_ns: int = NOW) -> list[Effect]:
    return deliver(of, f"PBR/Report/east/{node}/agg", encode(records), now_ns)


def deliver(of: Aggregator, topic: str, body: bytes, now_ns: int = NOW) -> list[Effect]:
    return of.receive("mesh", Delivered(topic, body), now_ns)


def kept(effects: list[Effect]) -> list[Record]:
    return [item for effect in kinds(effects, Append) for item in effect.items if isinstance(item, Record)]


def alerts(effects: list[Effect]) -> list[AlertEvent]:
    return [item for effect in kinds(effects, Append) for item in effect.items if isinstance(item, AlertEvent)]


def reasons(effects: list[Effect]) -> list[str]:
    return [log.fields["reason"] for log in kinds(effects, Log) if log.event == "refused"]


def published(effects: list[Effect], topic: str) -> list[bytes]:
    return [effect.body for effect in kinds(effects, Publish) if effect.topic == topic]


@pytest.mark.spec("MR-081")
def test_it_collects_from_many_nodes() -> None:
    of = aggregator()
    for number in range(20):
        told = record(node=f"n{number}", uri=f"tcp://{number}")
        assert kept(report(of, told, node=f"n{number}")) == [told]
    assert len(of.newest) == 20
    assert of.topics[:2] == ("PBR/Report/east/+/agg", "PBR/Report/east/+")


def test_a_node_speaks_for_itself_and_its_realm_only() -> None:
    of = aggregator()
    effects = report(of, record(node="b"), record(realm="west"), record(uri="good"))
    assert kept(effects) == [record(uri="good")]
    assert reasons(effects) == [
        "a record of b in east came from a", "a record of a in west came from a",
    ]  # fmt: skip
    assert of.refused == 2


def test_bad_lines_are_refused_with_the_reason() -> None:
    of = aggregator()
    body = encode([record(deviation_ms=-1.2), record()]) + b"nonsense\n"
    effects = deliver(of, "PBR/Report/east/a", body)
    assert kept(effects) == [record()]
    assert "line 1: deviation_ms: -1.2 is negative" in reasons(effects)[0]


@pytest.mark.parametrize("topic", ["x", "PBR/Report/west/a", "PBR/Snapshot/west/all", "PBR/Report/east/a/agg/more"])
def test_what_was_not_asked_for_is_refused(topic: str) -> None:
    of = aggregator()
    assert reasons(deliver(of, topic, b"{}")) == ["nothing of this topic is read here"]


def test_an_old_record_is_kept_but_does_not_replace_a_newer_one() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    report(of, record(stamp_ns=NOW, latency_ms=1.0))
    effects = report(of, record(stamp_ns=NOW - SECOND, latency_ms=100.0))
    assert len(kept(effects)) == 1
    assert alerts(effects) == []
    assert of.newest[LINK, "a"].latency_ms == 1.0


@pytest.mark.spec("MR-099")
def test_an_alert_leaves_as_an_event() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    effects = report(of, record(latency_ms=100.0))
    (body,) = published(effects, "PBR/Alert/east")
    assert messages.decode(body, AlertEvent).rule == "slow"
    assert [event.state for event in alerts(effects)] == ["raised"]


class TestControl:
    @pytest.mark.spec("MR-085")
    def test_an_order_goes_to_a_monitor_and_its_answer_comes_back(self) -> None:
        of = aggregator(orders=(Standing(action="report_only", change=Change(kind="percent", value=10)),))
        watched = Monitor("n1", MonitorSettings(realm="east"))
        watched.reading(record(), 0)
        (sent,) = kinds(report(of, record(node="n1"), node="n1"), Publish)
        (answer,) = watched.received(sent.topic, sent.body, 0)
        assert isinstance(answer, Publish)
        assert messages.decode(answer.body, ControlReply).applied == (LINK,)
        done = {"node": "n1", "action": "report_only", "links": 1}
        assert deliver(of, answer.topic, answer.body) == [Log("a monitor has done what it was ordered", "info", done)]
        assert deliver(of, answer.topic, answer.body) == []  # only once
        assert kinds(of.tick(NOW + 31 * SECOND), Log) == []

    def test_what_a_monitor_refuses_is_logged(self) -> None:
        of = aggregator(orders=(Standing(action="stop"),))
        (sent,) = kinds(report(of, record(node="n1"), node="n1"), Publish)
        reply = ControlReply(id=messages.decode(sent.body, ControlRequest).id, node="n1", refused=("no such link",))
        (log,) = deliver(of, "PBR/Control/east/n1/Reply", messages.encode(reply))
        assert log == Log("a monitor refused", "warning", {"node": "n1", "action": "stop", "reasons": reply.refused})

    def test_nobody_answers_for_another(self) -> None:
        of = aggregator(orders=(Standing(action="stop"),), announce_s=60.0)
        (sent,) = kinds(report(of, record(node="n1"), node="n1"), Publish)
        id = messages.decode(sent.body, ControlRequest).id
        effects = deliver(of, "PBR/Control/east/n2/Reply", messages.encode(ControlReply(id=id, node="n2")))
        assert [log.event for log in kinds(effects, Log)] == ["refused"]
        assert "n2 answers for n2 an order to n1" in reasons(effects)[0]
        of.tick(NOW)
        assert of.next_tick() == NOW + 30 * SECOND
        assert kinds(of.tick(NOW + 30 * SECOND - 1), Log) == []
        late = kinds(of.tick(NOW + 30 * SECOND), Log)
        assert late == [Log("a monitor did not answer", "warning", {"node": "n1", "action": "stop"})]
        assert of.next_tick() == NOW + 60 * SECOND

    def test_an_order_that_is_none_is_an_error(self) -> None:
        with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'explode'"):
            msgspec.convert({"action": "explode"}, Standing)

    def test_too_many_orders_without_an_answer_do_not_end_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chappe.aggregation.aggregator.ORDERS", 1)
        of = aggregator(orders=(Standing(action="stop"),))
        report(of, record(node="n1"), node="n1")
        effects = report(of, record(node="n2"), node="n2")
        assert len(kept(effects)) == 1
        assert "1 orders have no answer yet" in reasons(effects)[0]

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
        effects = deliver(west, "PBR/Snapshot/east/partners", messages.encode(snapshot))
        assert kept(effects) == list(snapshot.records)

    @pytest.mark.spec("MR-088")
    def test_without_a_view_that_says_so_nothing_leaves_the_realm(self) -> None:
        east = aggregator((View(group="staff", user_groups=("*",)),))
        report(east, record())
        assert [effect for effect in kinds(east.tick(NOW), Publish) if "Snapshot" in effect.topic] == []

    @pytest.mark.spec("MR-089")
    def test_a_realm_that_is_not_followed_is_not_read(self) -> None:
        west = aggregator(realm="west", follows=(("east", "partners"),))
        snapshot = Snapshot(realm="north", aggregator="x", group="partners", generated_ns=NOW, records=(record(),))
        effects = deliver(west, "PBR/Snapshot/north/partners", messages.encode(snapshot))
        assert kept(effects) == []

    def test_a_realm_speaks_for_its_own_links_only_and_is_not_passed_on(self) -> None:
        west = aggregator((self.VIEW,), realm="west", follows=(("east", "partners"),))
        records = (record(), record(uri="2", realm="west"), record(uri="3", latency_ms=-1.0))
        snapshot = Snapshot(realm="east", aggregator="x", group="partners", generated_ns=NOW, records=records)
        effects = deliver(west, "PBR/Snapshot/east/partners", messages.encode(snapshot))
        assert kept(effects) == [record()]
        assert reasons(effects) == [
            "east speaks for a link of west", "latency_ms: -1 is negative",
        ]  # fmt: skip
        assert published(west.tick(NOW), "PBR/Snapshot/west/partners") == []
        forged = Snapshot(realm="north", aggregator="x", group="partners", generated_ns=NOW, records=records)
        effects = deliver(west, "PBR/Snapshot/east/partners", messages.encode(forged))
        assert "a snapshot of north on the topic of east" in reasons(effects)[0]

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
        deliver(of, f"PBR/Aggregator/Announce/{realm}", messages.encode(told))
    assert sorted(of.parties) == [
        ("aggregator", "agg-2", "east"), ("consumer", "portal", "west"), ("producer", "n1", "east"),
    ]  # fmt: skip
    assert of.parties["consumer", "portal", "west"].details["wants"] == (("east", "partners"),)
    forged = messages.encode(Announce(name="x", realm="north"))
    assert "on the topic of west" in reasons(deliver(of, "PBR/Aggregator/Announce/west", forged))[0]


def test_it_announces_itself_with_its_load() -> None:
    of = aggregator(nodes=("n*",), url="tcp://x:1")
    of.tick(NOW)
    for second in range(100):
        report(of, record(stamp_ns=NOW + second))
    of.receive("store", Appended(100), NOW)
    assert published(of.tick(NOW + SECOND), "PBR/Aggregator/Announce/east") == []
    (body,) = published(of.tick(NOW + 5 * SECOND), "PBR/Aggregator/Announce/east")
    told = messages.decode(body, Announce)
    assert (told.name, told.load, told.nodes, told.stored, told.url) == ("agg", 20.0, ("n*",), 100, "tcp://x:1")
    assert of.next_tick() == NOW + 10 * SECOND


@pytest.mark.spec("MR-079")
def test_foreign_measurements_of_configured_links_become_advice() -> None:
    of = aggregator(advises={LINK: ("n1", 0.4)})
    good = record(origin="foreign:pscheduler", latency_ms=12.0, loss=0.1)
    other = record(uri="other", origin="foreign:pscheduler", latency_ms=1.0)
    measured = [good, other, record(), record(origin="foreign:x", latency_ms=-1.0)]
    effects = of.receive("foreign", ForeignRecords(measured), NOW)
    assert kept(effects) == [good, other]
    (body,) = published(effects, "PBR/Advice/east/n1")
    advice = messages.decode(body, Advice)
    assert (advice.link, advice.weight, advice.latency_ms, advice.loss) == (LINK, 0.4, 12.0, 0.1)
    assert reasons(effects) == [
        "origin: is not foreign",
        "latency_ms: -1 is negative",
    ]


def test_links_that_are_gone_are_forgotten_and_their_alerts_are_over() -> None:
    of = aggregator(rules=(Rule(name="slow", when="latency_ms > 80"),))
    report(of, record(latency_ms=100.0))
    effects = of.tick(NOW + FORGET_NS + SECOND)
    assert [event.state for event in alerts(effects)] == ["cleared"]
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
    effects = deliver(of, topic, body)
    assert kept(effects) == []
    assert of.newest == {(LINK, "a"): record()}
    for mine in watched.topics:
        assert watched.received(mine, body, 0) == []


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_jump_of_the_clock_neither_silences_it_nor_makes_it_chatter(jump_s: int) -> None:
    ahead = [0]
    of = Aggregator(Settings(name="agg", realm="east"), Access(), Alerts(()), lambda now_ns: now_ns + NOW + ahead[0])
    assert len(published(of.tick(0), "PBR/Aggregator/Announce/east")) == 1
    ahead[0] = jump_s * SECOND
    announced = [
        second for second in range(1, 21) if published(of.tick(second * SECOND), "PBR/Aggregator/Announce/east")
    ]
    assert announced == [5, 10, 15, 20]
    stamped = record(stamp_ns=NOW + (jump_s + 20) * SECOND)
    assert kept(report(of, stamped, now_ns=20 * SECOND)) == [stamped]
    assert of.parties["producer", "a", "east"].heard_ns == NOW + (jump_s + 20) * SECOND
