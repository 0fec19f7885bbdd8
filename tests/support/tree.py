"""Deployments with several clouds, and an inner broker whose children are played by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from chappe.machine import Change, Connected, Disconnected, Effect, Persist, Send
from chappe.status.inner.broker import InnerBroker
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.wire.base import Answer, Done, Message, Qos, Variable
from chappe.wire.control import decode, encode
from chappe.wire.management import (
    AddChannel,
    Ask,
    ChangeMode,
    ChannelFact,
    Child,
    Claim,
    ClearFlood,
    Commit,
    Describe,
    Described,
    Entity,
    Map,
    Release,
    RemoveChannel,
    RouterFact,
    Seek,
    SetFlood,
    SubscribeRequest,
)

SECOND = 1_000_000_000


def deployment(
    tree: dict[str, str], clouds: dict[str, Iterable[str]], channels: Iterable[str], **channel: Any
) -> Topology:
    """`tree`: broker -> parent; `clouds`: leaf -> routers (small letters: edges); `channels`: `a-b[:milliseconds]`."""
    return Topology(
        broker=tuple(
            BrokerSpec(name=name, parent=parent, listen=(f"tcp://127.0.0.1:{7000 + at}",), number=at)
            for at, (name, parent) in enumerate(tree.items())
        ),
        router=tuple(
            RouterSpec(name=name, cloud=cloud, listen="tcp://127.0.0.1:0", edge=name.islower())
            for cloud, names in clouds.items()
            for name in names
        ),
        channel=tuple(_channel(text, channel) for text in channels),
    )  # fmt: skip


def _channel(text: str, fields: dict[str, Any]) -> ChannelSpec:
    pair, _, latency_ms = text.partition(":")
    a, b = pair.split("-")
    return ChannelSpec(between=(a, b), latency_ms=float(latency_ms or 1), **fields)


TWO_CLOUDS = deployment(
    {"root": "", "north": "root", "south": "root"},
    {"north": ("n1", "N2", "N3"), "south": ("s1", "S2", "S3")},
    ("n1-N2", "n1-N3", "s1-S2", "s1-S3", "N2-S2", "N3-S3"),
)
"""Between n1 and s1 there are two disjoint paths, each over one channel that the root owns."""

THREE_LEVELS = deployment(
    {"root": "", "west": "root", "east": "root", "w1": "west", "w2": "west", "e1": "east", "e2": "east"},
    {"w1": ("a1", "A2"), "w2": ("b1", "B2"), "e1": ("c1", "C2"), "e2": ("d1", "D2")},
    ("a1-A2", "b1-B2", "c1-C2", "d1-D2", "A2-b1", "A2-B2", "C2-d1", "C2-D2", "B2-c1", "B2-C2:2", "a1-d1:20"),
)
"""A chain of four clouds below two inner brokers; a1-d1 is a second, slower way between the ends."""


def narrowed(topology: Topology, *narrow: str) -> Topology:
    """The same with some channels that have room for one stream of 100 events/s."""
    return msgspec.structs.replace(topology, channel=tuple(
        msgspec.structs.replace(channel, bytes_per_s=3_000.0) if "-".join(channel.between) in narrow else channel
        for channel in topology.channel
    ))  # fmt: skip


NARROW_MIDDLE = narrowed(THREE_LEVELS, "A2-b1", "A2-B2", "C2-d1", "C2-D2")
"""The channels that west and east manage have room for one stream each."""


class Played:
    """An inner broker with the test as its shell, its store, and all its neighbours."""

    def __init__(self, role: str, topology: Topology, variables: dict[str, tuple[Variable, str]] | None = None) -> None:
        self.role, self.topology = role, topology
        self.variables = variables or {}  # `publisher/variable` -> description and edge
        self.store: dict[tuple[str, str], bytes] = {}
        self.now_ns = SECOND
        self.epoch = 0
        self.sent: list[Send] = []
        self.silent: set[str] = set()  # children that do not answer
        self.answers: Callable[[str, Message], Message | None] = lambda child, message: None
        self.start()

    def start(self) -> None:
        """A new process takes over; everybody connects to it again."""
        self.broker = InnerBroker(self.role, self.topology)
        self.broker.restore([Change(kind, key, value) for (kind, key), value in sorted(self.store.items())])
        self.epoch += 1
        self.take(self.broker.lead(self.epoch, self.now_ns))

    def take(self, outputs: list[Effect]) -> list[Send]:
        """Commit, then collect what is sent, as it is on the wire."""
        sends = []
        for output in outputs:
            if isinstance(output, Persist):
                assert not sends, "nothing leaves before what it follows from is durable"
                for change in output.changes:
                    if change.value is None:
                        self.store.pop((change.kind, change.key), None)
                    else:
                        self.store[change.kind, change.key] = change.value
            else:
                sends.append(Send(output.to, decode(encode(output.message))))
        self.sent += sends
        return sends

    def say(self, source: str, message: Message) -> list[Send]:
        return self.take(self.broker.receive(source, decode(encode(message)), self.now_ns))

    def join(self, *children: str, claims: tuple[tuple[str, str], ...] | None = None) -> list[Send]:
        """Children connect and tell their part of the deployment."""
        sends = []
        for child in children:
            sends += self.take(self.broker.receive(f"child/{child}", Connected(), self.now_ns))
            height = self.topology.height(child)
            sends += self.say(f"child/{child}", Child(id=1, role=child, epoch=1, mode=0, issuer=b"1", height=height,
                                                      claims=claims))  # fmt: skip
            sends += self.say(f"child/{child}", facts(self.topology, child))
        return sends

    def lose(self, child: str) -> list[Send]:
        return self.take(self.broker.receive(f"child/{child}", Disconnected(), self.now_ns))

    def pass_time(self, seconds: float) -> list[Send]:
        self.now_ns += round(seconds * SECOND)
        return self.take(self.broker.tick(self.now_ns))

    def settle(self, sends: list[Send]) -> list[Send]:
        """Children answer until nobody is asked any more; returns all that was sent."""
        seen, queue = list(sends), list(sends)
        while queue:
            send = queue.pop(0)
            child = send.to.removeprefix("child/")
            if send.to.startswith("child/") and child not in self.silent:
                answer = self.answers(child, send.message) or self.usual(send.message)
                if answer is not None:
                    more = self.say(send.to, answer)
                    seen += more
                    queue += more
        return seen

    def usual(self, message: Message) -> Message | None:
        """What a child without problems says."""
        match message:
            case Describe():
                variable, edge = self.variables[f"{message.publisher}/{message.variable}"]
                return Described(id=message.id, variable=variable, edge=edge)
            case (
                Ask() | Commit() | Release() | SetFlood() | ClearFlood() | ChangeMode() | AddChannel() | RemoveChannel()
            ):
                return Done(id=message.id)
        return None

    def claim(self, publisher: str, cloud: str) -> list[Send]:
        child = self.broker.parts.view.child_of(cloud)
        return self.settle(self.say(f"child/{child}", Claim(id=1, publisher=publisher, cloud=cloud)))


def facts(topology: Topology, child: str) -> Map:
    """The map that a child tells when everything is up."""
    clouds = {leaf for leaf in topology.leaves if child in topology.ancestors(leaf)}
    inside = [router for router in topology.router if router.cloud in clouds]
    names = {router.name for router in inside}
    return Map(
        routers=tuple(RouterFact(router.name, router.cloud, router.edge, router.events_per_s) for router in inside),
        channels=tuple(
            ChannelFact(*channel.between, channel.bytes_per_s, channel.latency_ns, channel.security)
            for channel in topology.channel
            if names & set(channel.between)
        ),
    )  # fmt: skip


def variable(name: str, number: int = 1, interval_ms: float = 10, **fields: Any) -> Variable:
    publisher, _, own = name.partition("/")
    settings = {"priority": 3, "options": 0, **fields}
    return Variable(number, publisher, own, "float", 1, round(interval_ms * 1e6), **settings)


def seek(key: str, name: str, cloud: str, edge: str, *qos: Qos, number: int = 5, **fields: Any) -> Seek:
    publisher, _, own = name.partition("/")
    want = SubscribeRequest(
        id=0, entity=Entity("reader", b"1"), publisher=publisher, variable=own, qos=qos or (Qos(),), **fields
    )
    return Seek(id=number, subscription=key, cloud=cloud, edge=edge, request=want)


def messages(sends: Iterable[Send], *kinds: type[Message]) -> list[tuple[str, Any]]:
    """(to, message) of these kinds."""
    return [(send.to, send.message) for send in sends if isinstance(send.message, kinds)]


def answer(sends: Iterable[Send], to: str, number: int) -> Any:
    """The one answer to a request."""
    found = [
        send.message
        for send in sends
        if send.to == to and isinstance(send.message, Answer) and send.message.id == number
    ]
    assert len(found) == 1, found
    return found[0]
