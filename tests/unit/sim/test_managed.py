"""Managed deployments in virtual time: real brokers and routers, modelled links, leases and stores."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chappe.errors import StaleEpochError
from chappe.machine import Change
from chappe.sim.managed.client import StatusClient
from chappe.sim.managed.network import ManagedNetwork
from chappe.sim.managed.store import RoleStore
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.wire.base import Answer, Done, Qos
from chappe.wire.control import Find, Found
from chappe.wire.management import (
    ChangeMode,
    ClearFlood,
    Condense,
    Function,
    Input,
    Issued,
    SetFlood,
    Uncondense,
)
from chappe.wire.status import decode_status

S = 1_000_000_000
URLS = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
TWICE = Qos(interval_ns=S, latency_ns=100_000_000, redundancy=2)


def ring(size: int = 6, clouds: int = 1) -> Topology:
    """Routers r0, r1 … in a ring with one chord, in one cloud or in halves below a root; two processes a broker."""
    names = [f"r{at}" for at in range(size)]
    brokers = [BrokerSpec(name=f"c{at}", parent="root" if clouds > 1 else "", listen=URLS, number=at + 1,
                          store="postgresql://simulated") for at in range(clouds)]  # fmt: skip
    if clouds > 1:
        brokers.append(BrokerSpec(name="root", listen=URLS, store="postgresql://simulated"))
    channels = [(names[at], names[(at + 1) % size]) for at in range(size)] + [("r0", names[size // 2])]
    return Topology(
        broker=tuple(brokers),
        router=tuple(RouterSpec(name=name, cloud=f"c{at * clouds // size}", listen=URLS[0])
                     for at, name in enumerate(names)),
        channel=tuple(ChannelSpec(between=pair) for pair in channels),
    )  # fmt: skip


class Deployment:
    """Everything runs; r0 publishes once a second, the client of another router watches it."""

    def __init__(self, topology: Topology, watcher: str = "r2") -> None:
        self.network = ManagedNetwork(topology, 7)
        self.network.start()
        self.network.run(10)
        self.publisher = self.network.routers["r0"].client("plant")
        self.publisher.register("plant", "v", S)
        self.watcher: StatusClient = self.network.routers[watcher].client("desk")
        self.network.run(2)
        self.stream = self.watcher.watch("plant", "v", TWICE)
        self.network.run(5)
        self._publish()

    def _publish(self) -> None:
        self.publisher.publish()
        clock = self.network.clock
        clock.at((clock.now_ns // S + 1) * S, self._publish)

    def operate(self, role: str, request: object) -> list[Answer]:
        answers: list[Answer] = []
        assert self.network.operate(role, request, answers.append)  # type: ignore[arg-type]
        self.network.run(5)
        return answers

    def sizes(self) -> list[int]:
        return [len(router.paths) for router in self.network.routers.values()]


@pytest.mark.parametrize(("clouds", "watcher"), [(1, "r2"), (2, "r4")])
def test_a_subscription_gets_every_event_over_two_paths(clouds: int, watcher: str) -> None:
    deployed = Deployment(ring(clouds=clouds), watcher)
    assert (deployed.stream.state, deployed.stream.reason) == ("granted", "")
    deployed.network.run(20)
    assert deployed.stream.arrivals >= 20
    assert deployed.stream.holes == []
    assert sum(deployed.sizes()) == 6  # the whole ring, once around


def test_a_channel_that_fails_interrupts_nothing_and_a_second_one_does_until_it_is_back() -> None:
    deployed = Deployment(ring())
    deployed.network.channel("r0", "r1").fail()
    deployed.network.run(10)
    assert deployed.stream.holes == []
    other = [name for name in ("r3", "r5") if deployed.network.routers[name].installed]
    failed = deployed.network.channel("r2", "r3")
    assert "r3" in other
    failed.fail()
    deployed.network.run(10)
    failed.mend()
    deployed.network.run(10)
    assert len(deployed.stream.holes) == 1
    assert failed.was_down(deployed.stream.holes[0].after_ns + 2 * S, deployed.stream.holes[0].before_ns)


def test_a_router_that_comes_back_gets_its_table_again() -> None:
    deployed = Deployment(ring())
    router = deployed.network.routers["r1"]
    before = {key: path for key, (path, _) in router.installed.items()}
    assert before
    router.stop()
    deployed.network.run(10)
    router.start()
    deployed.network.run(10)
    assert {key: path for key, (path, _) in router.installed.items()} == before
    assert len(router.paths) == len(before)
    assert deployed.stream.holes == []


def test_another_process_leads_when_the_first_is_gone_and_streams_go_on() -> None:
    deployed = Deployment(ring())
    first = deployed.network.leader("c0")
    assert first is not None
    first.stop()
    deployed.network.run(20)
    second = deployed.network.leader("c0")
    assert second is not None
    assert second is not first
    another = deployed.watcher.watch("plant", "v2", TWICE)
    deployed.publisher.register("plant", "v2", S)
    deployed.network.run(10)
    assert another.state == "granted"
    assert deployed.stream.holes == []
    first.start()
    deployed.network.run(20)
    assert deployed.network.leader("c0") is second


def test_nothing_that_was_not_committed_leaves_while_the_store_is_away() -> None:
    deployed = Deployment(ring())
    store = deployed.network.stores["c0"]
    store.away = True
    stream = deployed.watcher.watch("plant", "v2", TWICE)
    deployed.publisher.register("plant", "v2", S)
    deployed.network.run(1)
    assert stream.state == "asked"
    assert not deployed.publisher.publications[1].variable_id
    store.away = False
    deployed.network.run(10)
    assert stream.state == "granted"


def test_an_epoch_that_is_over_commits_nothing() -> None:
    store = RoleStore("c0")
    assert store.acquire("one", 0, 5 * S) == 1
    assert store.acquire("two", 4 * S, 5 * S) is None
    assert store.acquire("two", 6 * S, 5 * S) == 2
    assert not store.renew("one", 1, 6 * S, 5 * S)
    with pytest.raises(StaleEpochError):
        store.commit(1, [Change("k", "a", b"1")])
    store.commit(2, [Change("k", "b", b"1")])
    assert store.load() == [Change("k", "b", b"1")]


def test_a_mode_change_at_the_root_reaches_every_router() -> None:
    deployed = Deployment(ring(clouds=2), "r4")
    answers = deployed.operate("root", ChangeMode(id=1, mode=3))
    assert answers == [Done(id=1)]
    assert {router.node.core.commands.modes.mode for router in deployed.network.routers.values()} == {3}
    deployed.network.run(10)
    assert deployed.stream.holes == []


def test_a_flooded_variable_reaches_a_router_that_has_no_path() -> None:
    deployed = Deployment(ring(clouds=2), "r4")
    answers = deployed.operate("root", SetFlood(id=1, publisher="plant", variable="v", level=2))
    assert [type(answer) for answer in answers] == [Done]
    assert all(router.node.engine.status.entries() == 1 for router in deployed.network.routers.values())


def test_values_of_a_flooded_variable_travel_through_both_clouds_until_flooding_ends() -> None:
    deployed = Deployment(ring(clouds=2), "r1")
    network = deployed.network

    def travelled(seconds: float) -> set[str]:
        """The routers that got values over a channel meanwhile."""
        channels = [pair for one, other in network.channels for pair in ((one, other), (other, one))]
        before = {pair: network.routers[pair[0]].sent(pair[1]) for pair in channels}
        network.run(seconds)
        return {pair[1] for pair in channels if network.routers[pair[0]].sent(pair[1]) > before[pair]}

    used = {path.target for router in network.routers.values() for path, _ in router.installed.values()} - {""}
    assert travelled(5) == used < set(network.routers)
    flooded = deployed.operate("root", SetFlood(id=1, publisher="plant", variable="v"))
    assert [type(answer) for answer in flooded] == [Done]
    assert travelled(5) >= set(network.routers) - {"r0"}
    cleared = deployed.operate("root", ClearFlood(id=2, publisher="plant", variable="v"))
    assert [type(answer) for answer in cleared] == [Done]
    assert travelled(5) == used


def test_tables_and_stores_are_empty_after_removal() -> None:
    deployed = Deployment(ring(clouds=2), "r4")
    deployed.watcher.leave()
    deployed.publisher.leave()
    deployed.network.run(90)
    assert deployed.sizes() == [0] * 6
    assert [router.node.engine.status.entries() for router in deployed.network.routers.values()] == [0] * 6
    kinds = ("publication", "subscription", "reservation", "decision", "leftover", "entity")
    assert [store.count(kind) for store in deployed.network.stores.values() for kind in kinds] == [0] * 18
    assert [process.failures for process in deployed.network.brokers.values()] == [[]] * 6


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        deployed = Deployment(ring())
        deployed.network.run(10)
        runs.append((deployed.network.clock.happened, deployed.stream.arrivals, deployed.stream.slowest_ns))
    assert runs[0] == runs[1]


class Summed:
    """r0, r1, r3 and r4 publish each second, a function adds what they publish, another router watches it."""

    def __init__(self, topology: Topology, reader: str, place: str = "") -> None:
        self.network = ManagedNetwork(topology, 7)
        self.network.start()
        self.network.run(10)
        routers = self.network.routers
        self.publishers = [routers[name].client(name) for name in ("r0", "r1", "r3", "r4")]
        for publisher in self.publishers:
            publisher.register(publisher.router, "power", S)
        self.reader = routers[reader].client("reader")
        self.network.run(2)
        inputs = tuple(Input(publisher.router, "power") for publisher in self.publishers)
        self.asked = self.reader.client.request(
            Condense, function=Function(publisher="area", variable="total", type="int", inputs=inputs, place=place,
                                        calculator="builtin:sum", trigger="event", interval_ns=S)
        )  # fmt: skip
        self.network.run(5)
        self.stream = self.reader.watch("area", "total", Qos(interval_ns=S))
        self.network.run(5)
        self.publish()

    def publish(self) -> None:
        for publisher in self.publishers:
            publisher.publish()
        clock = self.network.clock
        clock.at((clock.now_ns // S + 1) * S, self.publish)

    def run(self, seconds: float) -> list[int]:
        """The sums that arrive meanwhile."""
        found: list[int] = []

        def taken(payload: bytes) -> None:
            found.extend(int(each.value_as("int")) for each in decode_status(payload))

        self.reader.client.on_records = taken
        self.network.run(seconds)
        return found

    def places(self) -> list[str]:
        return [name for name, router in self.network.routers.items() if len(router.functions)]


@pytest.mark.parametrize(("clouds", "reader"), [(1, "r5"), (2, "r5")])
def test_a_function_is_placed_and_its_results_reach_a_subscriber(clouds: int, reader: str) -> None:
    summed = Summed(ring(clouds=clouds), reader)
    answer = summed.reader.client.answers[summed.asked]
    assert isinstance(answer, Issued)
    assert (summed.stream.state, summed.stream.variable_id) == ("granted", answer.variable_id)
    assert answer.place.rsplit("/", 1)[1] in summed.places()
    assert len(summed.places()) == clouds  # of two: r3 and r4 are added in their own, and the rest where r0 and r1 are
    sums = summed.run(20)
    assert len(sums) >= 18
    assert all(value % 4 == 0 for value in sums)  # all publish the same number
    assert [later - value for value, later in pairwise(sums)] == [4] * (len(sums) - 1)
    summed.reader.client.request(Uncondense, publisher="area", variable="total")
    summed.network.run(30)
    assert summed.places() == []
    assert summed.run(5) == []
    for client in (*summed.publishers, summed.reader):
        client.leave()
    summed.network.run(90)
    routers = summed.network.routers.values()
    assert {(len(router.paths), router.node.engine.status.entries()) for router in routers} == {(0, 0)}


def test_a_router_that_comes_back_gets_its_function_again() -> None:
    summed = Summed(ring(), "r5", place="r4")
    assert summed.places() == ["r4"]
    before = summed.run(5)
    router = summed.network.routers["r4"]
    router.stop()
    assert summed.places() == []
    assert len(summed.run(10)) <= 1
    router.start()
    assert len(summed.run(20)) >= 10
    assert summed.places() == ["r4"]
    assert len(before) >= 4


def test_a_function_by_time_gives_a_value_an_interval_while_its_inputs_rest() -> None:
    summed = Summed(ring(), "r5")
    inputs = (Input("r1", "power"),)
    function = Function(publisher="area", variable="beat", type="int", inputs=inputs, calculator="builtin:sum",
                        trigger="time", interval_ns=S // 4)  # fmt: skip
    summed.reader.client.request(Condense, function=function)
    summed.network.run(5)
    stream = summed.reader.watch("area", "beat", Qos(interval_ns=S // 4))
    summed.network.run(5)
    before = stream.arrivals
    summed.network.run(10)
    assert 38 <= stream.arrivals - before <= 42


@pytest.mark.parametrize("intervals", [(S, 4 * S), (4 * S, S)])
def test_two_functions_of_a_router_share_an_input_at_intervals_of_their_own(intervals: tuple[int, int]) -> None:
    summed = Summed(ring(), "r5")
    streams = []
    for interval_ns in intervals:
        function = Function(publisher="area", variable=f"each{interval_ns}", type="int", calculator="builtin:sum",
                            inputs=(Input("r1", "power", interval_ns=interval_ns),), place="r4")  # fmt: skip
        summed.reader.client.request(Condense, function=function)
        summed.network.run(5)
        streams.append(summed.reader.watch("area", function.variable, Qos()))
        summed.network.run(5)
    before = [stream.arrivals for stream in streams]
    summed.network.run(40)
    found = {at: stream.arrivals - was for at, stream, was in zip(intervals, streams, before, strict=True)}
    assert 38 <= found[S] <= 42
    assert 9 <= found[4 * S] <= 11


def test_names_of_both_clouds_are_found_by_pattern_before_and_after_other_processes_lead() -> None:
    deployed = Deployment(ring(clouds=2), "r4")
    client = deployed.watcher.client

    def found() -> set[str]:
        notices = [notice for notice in client.notices if isinstance(notice, Found)]
        return {"/".join(name) for notice in notices for name in notice.variables}

    client.request(Find, pattern="plant/#")
    deployed.network.run(2)
    assert found() == {"plant/v"}
    for role in ("c1", "root"):
        leader = deployed.network.leader(role)
        assert leader is not None
        leader.stop()
    deployed.network.run(20)
    deployed.publisher.register("plant", "later", S)
    deployed.network.routers["r5"].client("near").register("plant", "mine", S)  # a name of the other cloud
    deployed.network.routers["r5"].client("near too").register("other", "later", S)
    deployed.network.run(5)
    assert found() == {"plant/v", "plant/later"}
    assert deployed.stream.holes == []
