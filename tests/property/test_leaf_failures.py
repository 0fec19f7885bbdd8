"""Whatever is lost between any two messages, tables end up as the granted subscriptions say."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chappe.status.leaf.state import read
from chappe.wire.base import Qos, Request
from chappe.wire.management import (
    ChangeMode,
    ClearFlood,
    Entity,
    Function,
    Granted,
    Input,
    Issued,
    SetFlood,
    Unpublish,
    UnsubscribeRequest,
    Withdrawn,
)
from tests.support.clouds import LEAF, Cloud, check

ROUTERS = "abcd"
WAIT_NS = 3_000_000_000
FUNCTIONS = tuple(
    Function(
        publisher=f"f{n}", variable="sum", inputs=(Input("p0", "v"), Input(f"p{n + 1}", "v")), calculator="builtin:sum"
    )
    for n in range(2)
)
QUALITIES = (Qos(), Qos(interval_ns=40_000_000), Qos(redundancy=2, worst_redundancy=1), Qos(redundancy=2))


class Client:
    """An end-entity as the application sees it: it asks again for all it has when its edge has restarted."""

    def __init__(self, world: World, name: str, edge: str) -> None:
        self.world, self.name, self.edge = world, name, edge
        self.session = 1
        self.entity = Entity("", b"")
        self.published: dict[str, int] = {}  # variable -> request
        self.wanted: dict[str, tuple[Qos, int]] = {}
        self.attach()

    @property
    def router(self):  # type: ignore[no-untyped-def]
        return self.world.plane.routers[self.edge]

    def attach(self) -> None:
        self.entity = self.router.attach(self.name, str(self.session))
        for variable in list(self.published):
            self.publish(variable)
        for variable, (qos, _) in list(self.wanted.items()):
            self.subscribe(variable, qos)

    def restart(self) -> None:
        if self.name in self.router.entities:
            self.router.detach(self.name)
        self.session += 1
        self.published, self.wanted = {}, {}
        self.attach()

    def publish(self, variable: str) -> None:
        self.published[variable] = self.router.publish(self.entity, variable)

    def subscribe(self, variable: str, qos: Qos) -> None:
        self.wanted[variable] = (qos, self.router.subscribe(self.entity, variable, qos, wait_ns=WAIT_NS))

    def unpublish(self, variable: str) -> None:
        answer = self.router.answers.get(self.published.get(variable))
        if isinstance(answer, Issued):
            del self.published[variable]
            self.router.unpublish(self.entity, answer.variable_id)

    def granted(self, variable: str) -> int:
        """The id of a variable that this client believes to be subscribed to, or 0."""
        answer = self.router.answers.get(self.wanted[variable][1]) if variable in self.wanted else None
        if not isinstance(answer, Granted):
            return 0
        over = any(isinstance(notice, Withdrawn) and notice.variable_id == answer.variable.variable_id
                   for notice in self.router.notices)  # fmt: skip
        return 0 if over else answer.variable.variable_id

    def unsubscribe(self, variable: str) -> None:
        number = self.granted(variable)
        if number:
            del self.wanted[variable]
            self.router.unsubscribe(self.entity, number)


class World:
    """A square of routers with a diagonal, two clients an edge, and everything that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.cloud = Cloud("a-b-c-d-a a-c", choose=Random(seed).randrange)
        self.plane = self.cloud.plane
        self.active = LEAF
        self.spare = 0
        self.clients = [Client(self, f"{edge}{n}", edge) for edge in ROUTERS for n in range(2)]
        self.clients[0].publish("p0/v")
        self.clients[5].publish("p1/v")

    def do(self, action: str, one: int, two: int) -> None:
        client = self.clients[one % len(self.clients)]
        edge = ROUTERS[one % len(ROUTERS)]
        variable = f"p{two % 3}/v"
        match action:
            case "steps":
                for _ in range(one):
                    self.plane.step()
            case "advance":
                self.plane.advance(two * 0.35, 250_000_000)
            case "publish" if variable not in client.published:
                client.publish(variable)
            case "unpublish":
                client.unpublish(variable)
            case "subscribe":
                client.subscribe(variable, QUALITIES[two // 3 % len(QUALITIES)])
            case "unsubscribe":
                client.unsubscribe(variable)
            case "restart":
                client.restart()
            case "condense" if client.name in client.router.entities:
                client.router.condense(client.entity, FUNCTIONS[two % len(FUNCTIONS)])
            case "uncondense" if client.name in client.router.entities:
                client.router.uncondense(client.entity, f"f{two % len(FUNCTIONS)}/sum")
            case "flood":
                self.order(SetFlood, publisher=f"p{two % 3}", variable="v", modes=1 << one)
            case "unflood":
                self.order(ClearFlood, publisher=f"p{two % 3}", variable="v", modes=0xFFFF)
            case "mode":
                self.order(ChangeMode, mode=one)
            case "cut":
                self.plane.cut(edge, self.active)
            case "heal":
                self.heal()
            case "stall router":  # it answers later, or never
                self.plane.stalled.add(edge)
            case "resume router":
                self.plane.stalled.discard(edge)
            case "kill router":
                self.plane.kill(edge)
                self.return_router(edge)
            case "kill broker":
                self.plane.kill(self.active)
                self.plane.start(self.active)
            case "fail over":
                old = self.active
                self.plane.pause(old)
                self.spare += 1
                self.active = f"{LEAF}#{self.spare}"
                self.plane.start(self.active)
                if two % 2:
                    self.plane.resume(old)

    def order(self, kind: type[Request], **fields: Any) -> None:
        self.plane.operator(self.active).ask(kind, **fields)

    def return_router(self, edge: str) -> None:
        self.plane.start_router(edge, LEAF)
        for client in self.clients:
            if client.edge == edge:
                client.attach()

    def heal(self) -> None:
        for one, other in [tuple(link) for link in self.plane.severed]:
            self.plane.heal(one, other)

    def end(self) -> None:
        """Everything reconnects, stalled routers and old brokers wake up, and time passes."""
        self.plane.stalled.clear()
        self.heal()
        for name, process in list(self.plane.processes.items()):
            if name != self.active:
                self.plane.resume(name)
                self.plane.settle()
                assert process.broker.epoch < self.plane.stores[LEAF].epoch
        self.plane.advance(20, 500_000_000)


ACTIONS = (
    *(
        "steps",
        "steps",
        "publish",
        "publish",
        "subscribe",
        "subscribe",
        "subscribe",
        "unsubscribe",
        "unpublish",
        "restart",
    ),
    *("condense", "condense", "uncondense", "flood", "unflood", "mode"),
    *("cut", "heal", "kill router", "kill broker", "fail over", "advance"),
    *("stall router", "resume router", "advance"),
)
HISTORY = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 15), st.integers(0, 15)), max_size=40)


def live(history: list[tuple[str, int, int]], seed: int) -> None:
    world = World(seed)
    for action in history:
        world.do(*action)
    world.end()
    check(world.plane, LEAF, world.active)
    items = read(world.plane.stores[LEAF].load())
    subscribed = {(s.entity, f"{s.publisher}/{s.name}", s.variable_id) for s in items["subscription"].values()}
    for client in world.clients:
        assert not client.router.requests, "every request was answered"
        for variable in client.wanted:
            number = client.granted(variable)
            assert not number or (client.name, variable, number) in subscribed
    leaf = world.cloud.plane.broker(world.active)
    mode = leaf.rows("modes")[0]["mode"]
    for name, router in world.plane.routers.items():
        assert router.mode == mode
        assert len(router.floods) == len(leaf.rows("floods"))
        running = {place.function.publisher for place in router.functions.values()}
        assert running == {row["publisher"] for row in leaf.rows("functions") if row["router"] == name}
    every_table_can_be_emptied(world)


@pytest.mark.spec("GS-091", "GS-151", "GS-152", "GS-155")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=HISTORY, seed=st.integers(0, 2**32))
def test_no_path_is_lost_doubled_or_half_allocated(history: list[tuple[str, int, int]], seed: int) -> None:
    live(history, seed)


STALLS = st.lists(
    st.tuples(
        st.sampled_from(
            ("subscribe", "subscribe", "unsubscribe", "stall router", "resume router", "advance", "advance", "steps")
        ),
        st.integers(0, 15),
        st.integers(0, 15),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=STALLS, seed=st.integers(0, 2**32))
def test_every_request_is_answered_though_routers_stand_still(history: list[tuple[str, int, int]], seed: int) -> None:
    world = World(seed)
    for client in world.clients:
        client.subscribe("p0/v", QUALITIES[0])
    world.plane.settle()
    for action in history:
        world.do(*action)
    world.plane.advance(240, 1_000_000_000)  # nobody wakes up meanwhile: each attempt, and each one queued behind it
    for name, router in world.plane.routers.items():
        assert not router.requests or name in world.plane.stalled
    world.end()
    check(world.plane, LEAF, world.active)
    every_table_can_be_emptied(world)


def every_table_can_be_emptied(world: World) -> None:
    for name in range(3):
        world.order(ClearFlood, publisher=f"p{name}", variable="v", modes=0xFFFF)
    for function in world.cloud.plane.broker(world.active).rows("functions"):
        client = next(client for client in world.clients if client.name == function["creator"])
        client.router.uncondense(client.entity, f"{function['publisher']}/{function['variable']}")
    world.plane.advance(1)
    for entity, *_ in {(s.entity,) for s in read(world.plane.stores[LEAF].load())["subscription"].values()}:
        client = next(client for client in world.clients if client.name == entity)
        own = [s for s in read(world.plane.stores[LEAF].load())["subscription"].values() if s.entity == entity]
        for subscription in own:
            client.router.ask(UnsubscribeRequest, entity=client.entity, variable_id=subscription.variable_id)
    for publication in read(world.plane.stores[LEAF].load())["publication"].values():
        client = next(client for client in world.clients if client.name == publication.entity)
        client.router.ask(Unpublish, entity=client.entity, variable_id=publication.variable.variable_id)
    world.plane.advance(1)
    kinds = {kind for kind, _ in world.plane.stores[LEAF].items}
    assert kinds <= {"counter", "router", "mode"}
    for router in world.plane.routers.values():
        assert not router.paths
        assert not router.floods
        assert not router.functions
    leaf = world.cloud.plane.broker(world.active)
    assert all(not any(row["load"]) for row in leaf.rows("loads"))
