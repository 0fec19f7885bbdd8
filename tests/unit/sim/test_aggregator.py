"""An aggregator in the simulator: what members of a mesh measure reaches it, and what it orders reaches them."""

from __future__ import annotations

import pytest

from chappe.aggregation.access import Access, View
from chappe.aggregation.aggregator import Settings, StandingOrder
from chappe.aggregation.alerts import Alerts, Rule
from chappe.events.member_settings import MemberSettings
from chappe.events.reports import Reports
from chappe.linkstate.units import Address
from chappe.measure import messages, monitor
from chappe.measure.messages import AlertEvent, Announce, ControlRequest, RealmSnapshot
from chappe.measure.record import Record
from chappe.sim.aggregator import SimAggregator
from chappe.sim.build import Design, plain_config
from chappe.sim.link import Quality
from chappe.sim.network import Network


def measuring_chain(seed: int) -> Network:
    """Three nodes in a row that report what they measure to whoever aggregates realm east."""
    network = Network(seed)
    for name in ("n1", "n2", "n3"):
        address = Address((), name)
        settings = MemberSettings()
        reports = Reports(name, monitor.Settings(realm="east"), settings.profile)
        network.add_node(address, Design(plain_config(address, True), settings, reporter=reports))
    network.join("n1", "n2", Quality(delay_ms=5))
    network.join("n2", "n3", Quality(delay_ms=40))
    network.start()
    return network


@pytest.mark.spec("MR-081", "MR-083")
def test_what_members_measure_is_stored_judged_and_shown() -> None:
    network = measuring_chain(1)
    slow = Rule(name="slow", when="latency_ms > 30")
    view = View(group="partners", user_groups=("*",), exchange=True)
    settings = Settings(
        name="agg", realm="east", orders=(StandingOrder(action="set_interval", nodes=("n3",), interval_ms=500.0),)
    )
    of = SimAggregator(network.nodes["n1"], settings, Access((view,)), Alerts((slow,)))
    reader = network.nodes["n3"].client("reader")
    heard: list[tuple[str, bytes]] = []
    reader.on_event = lambda topic, body: heard.append((topic, body))
    reader.subscribe("PBR/#")
    network.run(150)

    records = [item for item in of.stored if isinstance(item, Record)]
    ends = {(record.node, record.peer): record.latency_ms for record in records}
    assert set(ends) == {("n1", "n2"), ("n2", "n1"), ("n2", "n3"), ("n3", "n2")}
    assert ends["n1", "n2"] == pytest.approx(5, abs=1)
    assert ends["n3", "n2"] == pytest.approx(40, abs=1)
    alerts = [item for item in of.stored if isinstance(item, AlertEvent)]
    assert {(alert.rule, alert.state) for alert in alerts} == {("slow", "raised")}
    assert of.machine.stored == len(records)  # alerts do not count
    assert (of.lost, [log for log in of.logs if log.event == "refused"]) == (0, [])

    def bodies(topic: str) -> list[bytes]:
        return [body for name, body in heard if name == topic]

    announced = [messages.decode(body, Announce) for body in bodies("PBR/Aggregator/Announce/east")]
    assert len(announced) >= 29  # every five seconds, but for the first, before there was a route
    assert announced[-1].load > 0
    assert {messages.decode(body, AlertEvent).rule for body in bodies("PBR/Alert/east")} == {"slow"}
    shown = [messages.decode(body, RealmSnapshot) for body in bodies("PBR/Snapshot/east/partners")]
    assert {(record.node, record.peer) for part in shown for record in part.records} == set(ends)
    (order,) = [messages.decode(body, ControlRequest) for body in bodies("PBR/Control/east/n3")]
    assert (order.action, order.interval_ms) == ("set_interval", 500.0)


def test_a_node_that_is_down_costs_what_was_published_and_nothing_else() -> None:
    network = measuring_chain(2)
    of = SimAggregator(network.nodes["n1"], Settings(name="agg", realm="east"), Access(), Alerts(()))
    network.run(60)
    before = len(of.stored)
    assert before > 0
    network.crash("n1")
    network.run(20)
    assert of.lost == 4  # announcements
    network.restart("n1")
    network.run(60)
    assert of.lost == 4
    later = [item for item in of.stored[before:] if isinstance(item, Record) and item.node == "n3"]
    assert later, "reports from two hops away reach it again"
