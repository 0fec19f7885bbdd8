"""A whole node in the simulator: clients with requests, static paths, a broker that leads, and its commands."""

from __future__ import annotations

from typing import Any

from chappe.core.access import Access
from chappe.core.sections import BrokerLink, Config, NodeSection, Peer, Route
from chappe.core.sessions import Sessions
from chappe.linkstate.units import Address
from chappe.machine import NEVER, AuditWritten, Disconnected, Effect, Input, Send
from chappe.machine import Address as Source
from chappe.sim.build import Design
from chappe.sim.client import Client
from chappe.sim.link import Quality
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.base import Done, Failed, Grant, Message
from chappe.wire.control import Goodbye, Register, Registered, Watch, Watching
from chappe.wire.management import Granted, Issued, Join, Lead, Path, Publish, Setup, SubscribeRequest
from chappe.wire.status import encode_value

MS = 1_000_000
GRANT = Grant(10 * MS, 1, 0, 1, 3)
RATE: dict[str, Any] = {"rate_num": 1, "rate_den": 10 * MS}


def add(network: Network, name: str, config: Config, **design: Any) -> Node:
    return network.add_node(Address((), name), Design(config, **design))


def answer(client: Client, number: int) -> Message:
    assert number in client.answers, client.notices
    return client.answers[number]


def publish(network: Network, client: Client, variable_id: int, count: int) -> None:
    for at in range(count):
        client.publish_value(variable_id, network.clock.wall_ns, encode_value(at))
        network.run(0.01)


class Broker:
    """A role that leads at once, issues ids, and grants every subscription over a path that it sets up first."""

    def __init__(self) -> None:
        self.joined: list[str] = []
        self.lost: list[str] = []
        self.done: list[Message] = []
        self._variables: dict[str, Any] = {}

    def made(self, sessions: Sessions, access: Access) -> Broker:
        self._sessions = sessions
        return self

    def takes(self, message: Message) -> bool:
        return not isinstance(message, Goodbye)

    def receive(self, source: Source, message: Input | AuditWritten, now_ns: int) -> list[Effect]:
        match message:
            case Disconnected():
                session = self._sessions.get(int(source))
                assert session is not None
                self.lost.append(session.name)
            case Join(router=router):
                self.joined.append(router)
                return [Send(source, Lead(role="leaf", epoch=1))]
            case Publish(variable=variable):
                variable.variable_id = 7
                self._variables[variable.variable] = variable
                return [Send(source, Issued(id=message.id, variable_id=7))]
            case SubscribeRequest():
                variable = self._variables[message.variable]
                path = Path(variable, 1, "", "", (10 * MS,), (3,), 0xFFFF)
                granted = Granted(id=message.id, variable=variable, grants=(GRANT,), modes=0xFFFF)
                setup = Setup(id=900, epoch=1, command=1, paths=(path,))
                return [Send(source, setup), Send(source, granted)]
            case Done() | Failed():
                self.done.append(message)
        return []

    def tick(self, now_ns: int) -> list[Effect]:
        return []

    def next_tick(self) -> int:
        return NEVER

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        return None

    def gauges(self) -> dict[str, float]:
        return {}


def test_clients_register_and_watch_over_a_static_path_and_values_arrive_a_link_later() -> None:
    network = Network(1)
    paths = (Route(variables="plant/#", to=("b",)),)
    add(network, "a", Config(node=NodeSection(name="a"), peer=(Peer(name="b"),), path=paths))
    add(network, "b", Config(node=NodeSection(name="b"), peer=(Peer(name="a"),)))
    network.join("a", "b", Quality(delay_ms=5))
    network.start()
    network.run(0.1)
    meter, reader = network.nodes["a"].client("meter"), network.nodes["b"].client("reader")
    asked = reader.request(Watch, publisher="plant", variable="speed", wait_ns=10_000 * MS)
    network.run(0.1)
    assert asked not in reader.answers  # nobody publishes it yet
    registered = meter.request(Register, publisher="plant", variable="speed", **RATE)
    network.run(0.1)
    issued, watching = answer(meter, registered), answer(reader, asked)
    assert isinstance(issued, Registered)
    assert isinstance(watching, Watching)
    assert watching.variable_id == issued.variable_id
    publish(network, meter, issued.variable_id, 5)
    network.run(0.1)
    assert [arrival.record.value for arrival in reader.values] == [encode_value(at) for at in range(5)]
    assert all(arrival.when_ns - network.clock.now_ns < 0 for arrival in reader.values)


def test_a_watch_that_nobody_serves_is_answered_when_its_time_is_over() -> None:
    network = Network(1)
    network.add("a")
    network.start()
    reader = network.nodes["a"].client("reader")
    asked = reader.request(Watch, publisher="plant", variable="speed", wait_ns=2_000 * MS)
    network.run(1.9)
    assert asked not in reader.answers
    network.run(0.2)
    refusal = answer(reader, asked)
    assert isinstance(refusal, Failed)
    assert refusal.code == "unknown"


def test_a_router_joins_its_broker_whose_commands_are_written_down_and_carried_out() -> None:
    network = Network(1)
    broker = Broker()
    managed = BrokerLink(name="leaf", urls=())
    add(network, "r1", Config(node=NodeSection(name="r1"), broker=managed))
    add(network, "leaf-1", Config(node=NodeSection(name="leaf-1")), role=broker.made)
    network.join("r1", "leaf-1", Quality(delay_ms=2), manages="leaf-1")
    network.start()
    network.run(0.1)
    router = network.nodes["r1"]
    assert broker.joined == ["r1", "r1"]  # when it connects, and when it knows who leads
    assert router.core.edge is not None
    assert router.core.edge.leader == router.ports["leaf-1"]
    meter = router.client("meter")
    number = meter.request(Register, publisher="plant", variable="speed", **RATE)
    network.run(0.1)
    assert isinstance(answer(meter, number), Registered)
    number = meter.request(Watch, publisher="plant", variable="speed")
    network.run(0.1)
    assert isinstance(answer(meter, number), Watching)
    assert broker.done == [Done(id=900)]
    assert len(router.core.paths) == 1
    network.crash("leaf-1")
    network.run(5.0)
    assert router.core.edge.leader is None
    network.restart("leaf-1")
    network.run(1.0)
    assert router.core.edge.leader is not None
    assert broker.joined[2:] == ["r1", "r1"]


def test_a_client_that_ends_leaves_nothing_behind() -> None:
    network = Network(1)
    network.add("a")
    network.start()
    node = network.nodes["a"]
    meter = node.client("meter")
    number = meter.request(Register, publisher="plant", variable="speed", **RATE)
    network.run(0.01)
    assert isinstance(answer(meter, number), Registered)
    ports = len(node.engine.open_ports())
    meter.send(Goodbye(reason="done"))
    network.run(0.01)
    node.close_client(meter)
    network.run(120.0)  # longer than a client that may come back is waited for
    assert len(node.core.variables.directory) == 0
    assert len(node.engine.open_ports()) == ports - 1


def test_two_runs_of_the_same_seed_give_every_client_the_same() -> None:
    def run() -> list[tuple[int, bytes]]:
        network = Network(7)
        paths = (Route(variables="plant/#", to=("b",)),)
        add(network, "a", Config(node=NodeSection(name="a"), peer=(Peer(name="b"),), path=paths))
        add(network, "b", Config(node=NodeSection(name="b")))
        network.join("a", "b", Quality(delay_ms=5, jitter_ms=2, loss=0.01))
        network.start()
        network.run(0.2)
        meter, reader = network.nodes["a"].client("meter"), network.nodes["b"].client("reader")
        number = meter.request(Register, publisher="plant", variable="speed", **RATE)
        reader.request(Watch, publisher="plant", variable="speed", wait_ns=1_000 * MS)
        network.run(0.1)
        issued = answer(meter, number)
        assert isinstance(issued, Registered)
        publish(network, meter, issued.variable_id, 20)
        network.run(0.1)
        return [(arrival.when_ns, arrival.record.value) for arrival in reader.values]

    first = run()
    assert len(first) >= 15
    assert first == run()
