"""Limited flooding, counted: copies and drops of one event in engines round by round, and scopes set by brokers."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from chappe.engine._engine import Engine
from chappe.wire.base import Done
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.management import ClearFlood, SetFlood
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually

VARIABLE = 1 << 22 | 9
Channel = tuple[str, str]

# 12 routers whose copies die out in round 8, the publisher's own copy being round 1; 14 channels make three circles.
TWELVE = "a-b a-c b-d c-d d-e e-f e-g f-h g-h h-i h-j i-j b-k c-l"


def channels_of(text: str) -> list[Channel]:
    return [(pair.split("-")[0], pair.split("-")[1]) for pair in text.split()]


class Flooded:
    """Routers in memory that flood one variable; bytes go from port to port when the test says so."""

    def __init__(self, channels: Iterable[Channel], levels: dict[Channel, int] | None = None, scope: int = 1) -> None:
        self.engines: dict[str, Engine] = {}
        self.ports: dict[Channel, int] = {}  # (router, neighbour) -> port
        for channel in channels:
            for one, other in (channel, channel[::-1]):
                engine = self.engines.setdefault(one, Engine())
                self.ports[one, other] = engine.open_port(peer=True, level=(levels or {}).get(channel, 1))
        self.publishers = {name: engine.open_port(issuer=b"p" * 16) for name, engine in self.engines.items()}
        for name, engine in self.engines.items():
            engine.status.set_variable(VARIABLE, 0, 1, [self.publishers[name]])
            engine.status.set_flooding(VARIABLE, scope, 0xFFFF)

    def publish(self, router: str, stamp: int) -> None:
        event = struct.pack(">qIB3xd", stamp, VARIABLE, 0, 0.5)
        self.engines[router].feed(self.publishers[router], encode_frame(Kind.STATUS, event))

    def waiting(self) -> list[Channel]:
        return [hop for hop, port in self.ports.items() if self.engines[hop[0]].pending(port)]

    def carry(self, hops: Iterable[Channel]) -> None:
        """What waits there now arrives; all of it has left before any of it arrives."""
        moved = [(hop, self._taken(hop)) for hop in hops]
        for (one, other), data in moved:
            self.engines[other].feed(self.ports[other, one], data)

    def _taken(self, hop: Channel) -> bytes:
        engine, port, data = self.engines[hop[0]], self.ports[hop], b""
        while part := bytes(engine.peek(port)):
            data += part
            engine.consumed(port, len(part))
        return data

    def count(self, name: str) -> int:
        """A counter, over all routers."""
        return sum(engine.counters()[name] for engine in self.engines.values())

    def reached(self) -> set[str]:
        return {name for name, engine in self.engines.items() if engine.counters()["status_in"]}


@pytest.mark.spec("GS-105", "GS-102")
def test_copies_and_drops_of_one_event_among_twelve_routers() -> None:
    channels = channels_of(TWELVE)
    flood = Flooded(channels)
    assert len(flood.engines) == 12
    flood.publish("a", 1)
    rounds, carried = 1, set[Channel]()
    while hops := flood.waiting():
        assert carried.isdisjoint(hops)  # no channel has the event twice in one direction
        carried.update(hops)
        flood.carry(hops)
        rounds += 1
    assert rounds == 8
    # Both directions of the 14 channels are channels of the scope; over 11 of them the first copy came, and it is not
    # sent back there. With the publisher's own: 28 - 11 + 1 copies, of which each router keeps one.
    assert len(carried) + 1 == 2 * len(channels) - 11 + 1 == 18
    assert flood.count("status_in") == 18
    assert flood.count("drop_duplicate") == 18 - 12 == 6
    assert flood.reached() == set(flood.engines)


@pytest.mark.spec("GS-105")
@pytest.mark.parametrize("seed", range(20))
def test_copies_and_drops_do_not_depend_on_who_is_faster(seed: int) -> None:
    """Channels carry in any order, routers form any graph: copies are channels, drops are channels less routers."""
    chance = random.Random(seed)
    names = [f"r{at}" for at in range(chance.randint(2, 15))]
    channels = {(names[at], names[chance.randrange(at)]) for at in range(1, len(names))}
    for _ in range(chance.randint(0, 12)):
        one, other = chance.sample(names, 2)
        if (other, one) not in channels:
            channels.add((one, other))
    flood = Flooded(sorted(channels))
    events = 5
    for stamp in range(events):
        flood.publish(chance.choice(names), 1 + stamp)
        while hops := flood.waiting():
            flood.carry(chance.sample(hops, chance.randint(1, len(hops))))
    directed = 2 * len(channels) - (len(names) - 1) + 1  # the way back of each first copy carries nothing
    assert flood.count("status_in") == events * directed
    assert flood.count("drop_duplicate") == events * (directed - len(names))


@pytest.mark.spec("GS-105", "GS-103")
def test_a_cloud_behind_a_channel_of_a_higher_level_is_not_reached() -> None:
    """F floods to height 2. D and E are in its scope but joined to F only by way of G, over channels of level 3."""
    levels = {("f1", "g1"): 3, ("g1", "d1"): 3, ("d1", "e1"): 2, ("f2", "h1"): 2}
    inside = channels_of("f1-f2 f2-f3 f1-f3 d1-d2 e1-e2 h1-h2 g1-g2")
    for scope, reached in ((1, "f1 f2 f3"), (2, "f1 f2 f3 h1 h2"), (3, "f1 f2 f3 h1 h2 g1 g2 d1 d2 e1 e2")):
        flood = Flooded([*inside, *levels], levels, scope)
        flood.publish("f1", 1)
        while hops := flood.waiting():
            flood.carry(hops)
        assert flood.reached() == set(reached.split())
        within = [channel for channel in (*inside, *levels) if set(channel) <= flood.reached()]
        copies = 2 * len(within) - (len(flood.reached()) - 1) + 1
        assert flood.count("status_in") == copies
        assert flood.count("drop_duplicate") == copies - len(flood.reached()) == 2  # the one circle f1, f2, f3


TREE = {"root": "", "west": "root", "f": "west", "h": "west", "d": "west", "g": "root"}
CLOUDS = {"f": ("f1", "f2", "f3"), "h": ("h1",), "d": ("d1",), "g": ("g1",)}
CHANNELS = ("f1-f2", "f2-f3", "f1-f3", "f2-h1", "f1-g1", "g1-d1")


def received(made: Deployed) -> Counter[str]:
    """Copies that came in, by cloud: inside a circle it depends on who is faster which router gets the second one."""
    counts: Counter[str] = Counter()
    for name, count in made.counted("status_in").items():
        counts[made.file.topology.routers[name].cloud] += count
    return counts


@pytest.mark.spec("GS-105", "GS-103", "GS-100")
async def test_brokers_of_three_heights_flood_to_their_own_scope(tmp_path: Path) -> None:
    """f, h, d are below west, but d is joined to f only by way of g, which is not: west does not reach it."""
    # of three routers in a circle one has a copy, two have two each: the publisher's, two first ones, two dropped
    expected = {"f": {"f": 5}, "west": {"f": 5, "h": 1}, "root": {"f": 5, "h": 1, "g": 1, "d": 1}}
    async with deployed(tmp_path, deployment(TREE, CLOUDS, CHANNELS)) as made:
        publisher = await made.client("f1", "p0")
        number = await publisher.register("p0/alarm")
        crowd = {at: await made.client(at, f"crowd.{at}", flooded=True) for at in ("f3", "h1", "g1", "d1")}
        flood = {"publisher": "p0", "variable": "alarm"}
        for broker, copies in expected.items():
            assert isinstance(await made.operators[broker].ask(SetFlood, **flood), Done)
            before = received(made)
            publisher.publish_status(number, 1.0)
            await eventually(lambda before=before, copies=copies: received(made) - before >= Counter(copies))  # type: ignore[misc]
            assert received(made) - before == Counter(copies)
            assert isinstance(await made.operators[broker].ask(ClearFlood, **flood), Done)
        # channels keep the order: had an earlier event come to g and d, it would be there before the last one
        wanted = {"f3": 3, "h1": 2, "g1": 1, "d1": 1}
        for at, client in crowd.items():
            await client.until(lambda client=client, at=at: len(client.records) >= wanted[at])  # type: ignore[misc]
        assert {at: len(client.records) for at, client in crowd.items()} == wanted
        assert sum(made.counted("drop_duplicate").values()) == 3 * 2
