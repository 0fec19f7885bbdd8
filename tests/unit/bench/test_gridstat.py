"""The arithmetic below the experiments: latencies from histograms, what a filter lets through, checks of routes."""

from __future__ import annotations

import math

import pytest

from bench.route_checker import Route, joined, problems
from bench.secured import histogram
from bench.streams import Account, Latencies, Reading, Sink, Stream, latencies
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology

US = 1_000


def counts(values_us: list[float]) -> list[int]:
    return histogram([round(value * US) for value in values_us])


@pytest.mark.spec("GS-171")
def test_latencies_of_a_histogram_are_within_a_bucket_of_the_values() -> None:
    values = [100.0] * 50 + [200.0] * 45 + [1_000.0] * 4 + [50_000.0]
    found = Latencies.of(counts(values))
    mean = sum(values) / len(values)
    assert found.count == 100
    assert found.mean_us == pytest.approx(mean, rel=0.016)
    assert found.sd_us == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 100), rel=0.016)
    for share, exact in ((found.p50_us, 100), (found.p95_us, 200), (found.p99_us, 1_000), (found.max_us, 50_000)):
        assert exact <= share <= exact * 1.04


def test_nothing_measured_is_no_number() -> None:
    found = Latencies.of(counts([]))
    assert found.count == 0
    assert all(math.isnan(value) for value in (found.mean_us, found.sd_us, found.p50_us, found.p99_us, found.max_us))


def test_latencies_between_two_readings_leave_out_what_was_before() -> None:
    early, late = counts([9_000.0] * 10), counts([9_000.0] * 10 + [100.0] * 5)
    before = Reading(0.0, 10, (10,), (early,))
    after = Reading(1.0, 15, (15,), (late,))
    (found,) = latencies(before, after)
    assert (found.count, found.mean_us < 110) == (5, True)


def test_what_did_not_arrive_is_lost() -> None:
    assert Account(100, [100, 50], [100, 48]).lost == 2
    assert Account(100, [100, 50], [100, 50]).lost == 0


@pytest.mark.parametrize("first_round", [0, 1, 5, 1_700_000_000_003])
@pytest.mark.parametrize("topics", [1, 3])
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_what_a_filter_lets_through_is_counted_as_it_would_pass(first_round: int, topics: int, every: int) -> None:
    """The rounds of a nominally stamped stream are multiples of the period: those of the interval pass."""
    period_ns = 1_000_000
    stream = Stream.__new__(Stream)  # the arithmetic alone, without the processes of a load generator
    stream.topics, stream.period_ns, stream._first_round = topics, period_ns, first_round
    for sent in range(50):
        rounds = [first_round + event // topics for event in range(sent)]
        passing = sum((number * period_ns) % (every * period_ns) == 0 for number in rounds)
        assert stream.passing(sent, Sink(1, interval_ns=every * period_ns)) == passing
    assert stream.passing(40, Sink(1)) == 40


# --- routes

NAMES = "abcd"
DIAMOND = Topology(
    broker=(BrokerSpec(name="leaf", listen=("tcp://127.0.0.1:1",)),),
    router=tuple(RouterSpec(name=name, cloud="leaf", listen="tcp://127.0.0.1:2", events_per_s=1000) for name in NAMES),
    channel=tuple(ChannelSpec(between=(a, b), latency_ms=2, bytes_per_s=24_000) for a, b in ("ab", "bd", "ac", "cd")),
)


def route(routers: str, *, key: str = "k", redundant: int = 0, interval_ms: float = 10, variable: str = "v") -> Route:
    return Route(key, redundant, ("p", variable), tuple(routers), (interval_ms, *[None] * 15))


GOOD = [route("abd"), route("acd", redundant=1)]


@pytest.mark.spec("GS-085")
def test_a_good_set_of_routes_is_accepted() -> None:
    assert problems(DIAMOND, GOOD, latency_ms=4, redundancy=2) == []
    assert problems(DIAMOND, [route("a")], latency_ms=0, redundancy=2) == []  # one edge for both needs no path


@pytest.mark.parametrize(
    ("routes", "redundancy", "words"),
    [
        ([route("abd"), route("abd", redundant=1)], 2, "share a router"),
        ([route("ad")], 1, "a channel that does not exist"),
        ([route("abdca")], 1, "visits a router twice"),
        ([route("abdc")], 1, "slower than 4 ms"),
        ([route("abd")], 2, "1 paths, 2 were granted"),
        ([route("abd"), route("ac", redundant=1)], 2, "different ends"),
        # 1,000 events/s are what a channel and a router take
        ([route("abd", interval_ms=0.5)], 1, "channel a -> b: 48,000 of 24,000 bytes/s in mode 0"),
        ([route("abd", interval_ms=0.5)], 1, "router b: 2,000 of 1,000 events/s in mode 0"),
        # 2 of 4, 3 of 6 … : 3 ms and 2 ms together are 666.7 events/s, and again as much of another variable
        (
            [route("abd", key=f"{v}{i}", interval_ms=i, variable=v) for v in "vw" for i in (2, 3)], 1,
            "router d: 1,333 of 1,000 events/s",
        ),
    ],
)  # fmt: skip
def test_each_fault_of_a_set_of_routes_is_found(routes: list[Route], redundancy: int, words: str) -> None:
    found = problems(DIAMOND, routes, latency_ms=4, redundancy=redundancy)
    assert any(words in line for line in found), found


def test_one_event_for_two_subscribers_is_one_event_on_the_way() -> None:
    """Ten subscribers of the full rate share a tree: a checker that added them up would call it an overload."""
    many = [route("abd", key=str(number), interval_ms=1 + number % 2) for number in range(10)]
    assert problems(DIAMOND, many, latency_ms=4, redundancy=1) == []


def test_segments_of_several_clouds_become_one_route() -> None:
    row = {"publisher": "p", "variable": "v", "key": "k", "redundant": 0, "intervals_ms": [10.0]}
    pieces = [
        {**row, "routers": ["s1", "s2"], "before": "n3", "after": ""},
        {**row, "routers": ["n1", "n2"], "before": "", "after": "m1"},
        {**row, "routers": ["n3"], "before": "m1", "after": "s1"},
        {**row, "routers": ["m1"], "before": "n2", "after": "n3"},
    ]
    (found,) = joined(pieces)
    assert found.routers == ("n1", "n2", "m1", "n3", "s1", "s2")
