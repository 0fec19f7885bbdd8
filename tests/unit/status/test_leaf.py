"""A leaf broker and the routers of its cloud: publications, subscriptions, tables."""

from __future__ import annotations

from chappe.wire.base import Qos
from chappe.wire.management import Granted, Issued
from tests.support.clouds import Cloud


def test_a_subscription_is_granted_when_every_router_has_its_path() -> None:
    cloud = Cloud("a-b-c")
    publisher = cloud.router("a").attach("plant")
    subscriber = cloud.router("c").attach("viewer")
    issued = cloud.ask("a", cloud.router("a").publish(publisher, "plant/power"))
    assert isinstance(issued, Issued)
    granted = cloud.ask("c", cloud.router("c").want(subscriber, "plant/power", Qos(interval_ns=25_000_000)))
    assert isinstance(granted, Granted)
    assert [grant.interval_ns for grant in granted.grants if grant is not None] == [20_000_000]
    assert granted.variable.variable_id == issued.variable_id == 7 << 22 | 1
    ways = {name: [(path.source, path.target) for path in cloud.router(name).paths.values()] for name in "abc"}
    assert ways == {"a": [("", "b")], "b": [("a", "c")], "c": [("b", "")]}
