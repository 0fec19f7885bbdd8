"""The initiator: who is measured, when, and what comes of it."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest

from chappe.measure.cost import PROFILES, Metrics, of, register
from chappe.measure.initiator import FACTORS, NEVER, Initiator, Settings
from tests.unit.measure.world import MS, SECOND, START, World


@pytest.mark.spec("MR-059")
def test_asleep_by_default_and_again_when_told() -> None:
    world = World(awake=False)
    world.link(1, 20.0)
    world.run(5)
    assert world.sent == []
    assert world.initiator.next_ns() == NEVER
    world.initiator.wake(world.now_ns)
    world.run(5)
    assert len(world.sent) in (4, 5)
    world.initiator.sleep()
    known = world.initiator.reading(1)
    world.run(5)
    assert world.times(1, since=10.0) == []
    assert known is not None
    assert known.metrics.latency_ms == 10.0


@pytest.mark.spec("MR-063", "MR-064")
def test_latency_is_averaged_over_probes() -> None:
    world = World()
    round_trips = iter([19.0, 21.0, 20.0, 20.0] * 10)
    world.link(7, lambda at: next(round_trips))
    readings = world.run(16)
    last = readings[-1][1]
    assert last.link == 7
    assert last.window >= 14
    assert last.metrics.latency_ms == pytest.approx(10.0, abs=0.05)
    assert last.metrics.deviation_ms == pytest.approx(np.std([9.5, 10.5, 10, 10]), abs=0.05)
    assert last.metrics.jitter_ms > 0
    assert last.metrics.jitter == pytest.approx(0.025, abs=0.005)


@pytest.mark.spec("MR-058")
def test_clocks_need_not_agree() -> None:
    """Each end has a clock of its own, hours apart and a percent faster; both measure the same link alike."""
    offsets = {"a": 0, "b": 7 * 3600 * SECOND}
    ends = {name: Initiator(Settings(), random.Random(3)) for name in offsets}
    rate = {"a": 1.0, "b": 1.01}
    for name, end in ends.items():
        end.add(1, False, offsets[name])
        end.wake(offsets[name])
    for step in range(20_000):  # milliseconds of true time; the echo comes 42 ms later
        for name, end in ends.items():
            now_ns = offsets[name] + int(step * MS * rate[name])
            for link, token in end.due(now_ns):
                rtt_ns = int(42 * MS * rate[name])
                end.echoed(link, token, rtt_ns, now_ns + rtt_ns)
            end.tick(now_ns)
    latencies = [end.reading(1).metrics.latency_ms for end in ends.values()]  # type: ignore[union-attr]
    assert latencies == pytest.approx([21.0, 21.21])


@pytest.mark.spec("MR-060")
def test_synchronous_rounds_under_one_interval() -> None:
    world = World(Settings(synchronous=True, adaptive=False))
    for link in range(20):
        world.link(link, 20.0)
    world.run(0.01)
    world.initiator.interval(2 * SECOND)
    world.run(10)
    rounds: dict[float, int] = {}
    for at, _ in world.sent:
        rounds[round(at, 6)] = rounds.get(round(at, 6), 0) + 1
    assert [rounds.get(float(second)) for second in (0, 2, 4, 6, 8)] == [20] * 5
    assert world.initiator.interval_ns() == 2 * SECOND


@pytest.mark.spec("MR-060")
def test_probes_are_spread_over_the_interval() -> None:
    world = World(Settings(adaptive=False), awake=False)
    for link in range(1000):
        world.link(link, 5.0)
    world.initiator.wake(world.now_ns)
    world.run(4)
    in_last = np.array([at for at, _ in world.sent if 3 <= at < 4])
    assert len(in_last) == pytest.approx(1000, abs=60)
    tenths = np.histogram(in_last, bins=10, range=(3, 4))[0]
    assert tenths.min() > 60
    assert tenths.max() < 140


@pytest.mark.spec("MR-062")
def test_probes_of_many_links_leave_together() -> None:
    world = World(Settings(adaptive=False))
    for link in range(300):
        world.link(link, world.noisy(5.0, 0.01))
    world.link(300, 5.0)
    world.initiator.interval(250 * MS, 300)
    world.run(9.95)
    late = [(at, link) for at, link in world.sent if at >= 4.95]
    usual = {at for at, link in late if link < 300}
    assert len(usual) <= 55  # a slot is a tenth of a second; a deviation asks between them
    assert len(late) == pytest.approx(5 * 300 + 20, abs=20)
    assert len({round(at % 0.1, 6) for at, link in late if link == 300}) > 1  # one measured so often has its own times


@pytest.mark.spec("MR-061")
def test_new_links_join_and_dead_ones_leave() -> None:
    world = World()
    world.link(1, 20.0)
    world.link(2, 20.0)
    world.run(3)
    world.initiator.remove(1)
    world.link(3, 30.0)
    world.run(3)
    assert [link for link in (1, 2, 3) if world.times(link, since=3.001)] == [2, 3]
    assert world.times(3)[0] < 3.2  # no whole interval passes before a new link is known
    assert world.initiator.links() == [2, 3]
    assert 1 not in world.initiator
    with pytest.raises(ValueError, match="no link 1 is measured here"):
        world.initiator.reading(1)
    with pytest.raises(ValueError, match="link 2 is measured already"):
        world.link(2, 1.0)


def test_a_link_that_gets_the_number_of_a_dead_one_starts_anew() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, 20.0, lossy=True)
    world.run(30)
    world.initiator.interval(5 * SECOND, 1)
    tokens = world.initiator.due(world.now_ns + 60 * SECOND)
    world.initiator.remove(1)
    world.link(1, 80.0)
    world.initiator.echoed(1, tokens[0][1], 20 * MS, world.now_ns + 60 * SECOND)
    assert world.initiator.refused == 1
    assert world.initiator.reading(1) is None
    assert len(world.initiator.history(1)) == 0
    assert world.initiator.interval_ns(1) == SECOND
    assert "loss" not in world.initiator.enabled(1)


@pytest.mark.spec("MR-062")
def test_ten_thousand_links_cost_nothing_while_nothing_is_due() -> None:
    initiator = Initiator(Settings(), random.Random(1))
    for link in range(10_000):
        initiator.add(link, False, START)
    initiator.wake(START)
    now_ns = START
    for _ in range(200):  # get going
        now_ns = max(initiator.next_ns(), now_ns)
        for link, token in initiator.due(now_ns):
            initiator.echoed(link, token, 10 * MS, now_ns + 10 * MS)
        initiator.tick(now_ns)
    assert initiator.interval_ns() == 5 * SECOND  # half a millisecond a link
    idle_ns = min(initiator.next_ns() - 1, now_ns)
    best = math.inf
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            initiator.due(idle_ns)
            initiator.tick(idle_ns)
            initiator.next_ns()
        best = min(best, (time.perf_counter() - began) / 100)
    assert best < 20e-6


@pytest.mark.spec("MR-062")
def test_a_hundred_links_take_a_small_part_of_a_core() -> None:
    world = World(Settings(adaptive=False))
    for link in range(100):
        world.link(link, world.noisy(20.0 + link, 0.02))
    world.run(10)
    began = time.process_time()
    world.run(40)
    share = (time.process_time() - began) / 40
    assert len(world.sent) > 4500
    assert share < 0.02  # of a core, with the model of the links and on any machine; about 0.003 is usual


@pytest.mark.spec("MR-051")
def test_a_link_can_be_switched_off_and_on() -> None:
    world = World()
    world.link(1, 20.0)
    world.link(2, 20.0)
    world.run(3)
    world.initiator.switch(1, False)
    world.run(3)
    assert world.times(1, since=3.001) == []
    assert len(world.times(2, since=3.001)) == 3
    assert world.initiator.enabled(1) == []
    assert world.initiator.reading(1) is not None
    world.initiator.switch(1, True)
    world.run(3)
    assert len(world.times(1, since=6.0)) >= 3


@pytest.mark.spec("MR-052", "MR-053", "MR-054", "MR-042")
def test_factors_are_switched_listed_and_asked_for() -> None:
    world = World()
    world.link(1, world.noisy(20.0, 0.1))
    assert world.initiator.enabled(1) == ["latency", "deviation", "jitter", "bandwidth"]
    world.initiator.switch_factor(1, "jitter", False)
    world.initiator.switch_factor(1, "loss", True)
    world.initiator.bandwidth(1, 5e6)
    world.run(20)
    assert world.initiator.enabled(1) == ["latency", "deviation", "loss", "bandwidth"]
    factors = world.initiator.factors(1)
    assert [factor.type for factor in factors] == ["latency_ms", "deviation_ms", "loss", "bandwidth"]
    assert all(math.isfinite(factor.value) and factor.description for factor in factors)
    assert world.initiator.factor(1, "bandwidth").value == 5e6
    reading = world.readings[-1][1]
    assert math.isnan(reading.metrics.jitter_ms)
    assert reading.metrics.jitter == 0.0
    assert reading.metrics.loss == 0.0
    with pytest.raises(ValueError, match="link 1 measures no 'jitter_ms'; it measures latency_ms"):
        world.initiator.factor(1, "jitter_ms")
    with pytest.raises(ValueError, match="no factor 'colour'; there are latency"):
        world.initiator.switch_factor(1, "colour", True)


@pytest.mark.spec("MR-052")
def test_without_a_factor_that_needs_them_no_probes_are_sent() -> None:
    world = World()
    world.link(1, 20.0)
    world.run(2)
    for name in FACTORS:
        world.initiator.switch_factor(1, name, name == "bandwidth")
    world.run(3)
    assert world.times(1, since=2.0) == []
    assert world.initiator.measures(1, "bandwidth")


@pytest.mark.spec("MR-066")
def test_loss_is_counted_over_the_last_hundred_probes() -> None:
    world = World(Settings(adaptive=False))
    lost_until = 60.0
    world.link(1, lambda at: None if at < lost_until and int(at) % 4 == 0 else 20.0, lossy=True)
    world.run(62)
    assert world.initiator.factor(1, "loss").value == pytest.approx(0.25, abs=0.02)
    world.run(70)
    partly = world.initiator.factor(1, "loss").value
    assert 0 < partly < 0.15
    world.run(60)
    assert world.initiator.factor(1, "loss").value == 0.0  # what is long ago is forgotten


@pytest.mark.spec("MR-066")
def test_a_gap_of_five_counts_five_and_reordering_none() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, lambda at: None if 20 <= at < 25 else 20.0, lossy=True)
    world.link(2, lambda at: 700.0 if int(at * 10) % 2 else 20.0, lossy=True)
    world.initiator.interval(SECOND // 10, 2)
    world.run(30)
    sent = len(world.times(1))
    assert world.initiator.factor(1, "loss").value == 5 / (sent + (sent == 0))
    assert world.initiator.factor(2, "loss").value == 0.0


@pytest.mark.spec("MR-066")
def test_a_late_answer_takes_the_loss_back() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, lambda at: 1500.0 if 15 <= at < 20 else 20.0, lossy=True)
    world.run(15)
    during = [reading.metrics.loss for _, reading in world.run(6)]
    assert max(during) > 0
    world.run(10)
    assert world.initiator.factor(1, "loss").value == 0.0


def test_an_answer_may_take_four_round_trips_or_a_second() -> None:
    world = World(Settings(adaptive=False, late_ns=60 * SECOND))
    world.link(1, lambda at: 900.0 if at < 100 else 2700.0 if at < 200 else None, lossy=True)
    world.run(200)
    assert world.initiator.factor(1, "loss").value == 0.0
    world.run(60)
    assert world.initiator.factor(1, "loss").value > 0


def test_echoes_that_cannot_be_are_refused() -> None:
    initiator = Initiator(Settings(), random.Random(1))
    initiator.add(1, False, START)
    initiator.add(2, False, START)
    initiator.wake(START)
    now_ns = START + SECOND
    tokens = dict(initiator.due(now_ns))
    assert 0 not in tokens.values()
    assert all(token < 1 << 63 for token in tokens.values())
    for link, token, rtt_ns in (
        (1, tokens[1] + 1000, MS),  # no such probe
        (1, tokens[2], MS),  # the probe of another link
        (9, tokens[1], MS),  # no such link
        (1, tokens[1], 0),
        (1, tokens[1], -5),
        (1, tokens[1], 50 * MS),  # longer than the probe has been away
    ):
        initiator.echoed(link, token, rtt_ns, now_ns + 10 * MS)
    assert initiator.refused == 6
    initiator.echoed(1, tokens[1], 9 * MS, now_ns + 10 * MS)
    initiator.echoed(1, tokens[1], 9 * MS, now_ns + 10 * MS)  # once only
    assert initiator.refused == 7
    initiator.tick(now_ns + SECOND)
    assert initiator.reading(1).metrics.latency_ms == 4.5  # type: ignore[union-attr]
    assert initiator.reading(2) is None


@pytest.mark.spec("MR-131")
def test_history_is_a_ring_of_bounded_size() -> None:
    world = World(Settings(adaptive=False, history=20))
    world.link(1, lambda at: 20.0 + at)
    world.run(12)
    early = world.initiator.history(1)
    assert 5 < len(early) <= 13
    assert early["latency_ms"][0] == pytest.approx(10.0, abs=0.6)
    world.run(60)
    late = world.initiator.history(1)
    assert len(late) == 20
    assert (np.diff(late["now_ns"]) > 0).all()
    assert late["now_ns"][-1] > START + 70 * SECOND
    assert (np.diff(late["latency_ms"]) > 0).all()
    assert np.isnan(late["loss"]).all()


def test_settings_that_make_no_sense_are_refused_with_all_reasons() -> None:
    with pytest.raises(ValueError) as caught:
        Settings(window=5, carrying=3, steps=(2.0,))
    for reason in ("window must be 6 or more", "carrying must be from 1 to 2", "begin with 1"):
        assert reason in str(caught.value)


def test_a_probe_that_could_not_be_sent_is_no_loss() -> None:
    initiator = Initiator(Settings(adaptive=False), random.Random(1))
    initiator.add(1, True, START)
    initiator.wake(START)
    now_ns = START
    for _ in range(200):
        now_ns = max(initiator.next_ns(), now_ns + 1)
        for link, token in initiator.due(now_ns):
            initiator.unsent(link, token)
            initiator.unsent(link, token)
        initiator.tick(now_ns)
    assert initiator.factor(1, "loss").value == 0.0
    assert initiator.rtt_ns(1) == 0


def test_of_a_link_that_never_answers_only_the_loss_is_told() -> None:
    world = World()
    world.link(1, lambda at: None)
    world.link(2, lambda at: None, lossy=True)
    readings = world.run(30)
    assert {reading.link for _, reading in readings} == {2}
    assert readings[-1][1].metrics.loss > 0.8
    assert math.isnan(readings[-1][1].metrics.latency_ms)
    assert world.initiator.reading(1) is None
    assert max(world.gaps(1)) <= 1.5  # and it stays at its base interval


def test_a_link_whose_cost_stays_near_the_one_told_makes_no_reading() -> None:
    world = World(Settings(adaptive=False, advertised=("default", "media")))
    world.link(1, 20.0)
    assert len(world.run(5)) >= 4
    world.initiator.quiet(1, [(10.0, 1.0), (10.0, 1.0)], Metrics(10.0))
    assert world.run(10) == []
    reading = world.initiator.reading(1)
    assert reading is not None
    assert len(world.initiator.history(1)) >= 13  # all are remembered
    world.initiator.quiet(1, [(10.0, 1.0), (8.0, 1.0)], Metrics(10.0))
    assert len(world.run(3)) >= 2  # by one profile it is another


def test_noise_of_a_short_link_is_hardly_ever_news_and_a_new_level_is() -> None:
    """Its jitter is a large share of next to nothing, and another one in each window."""
    tellings = {certainty: _tellings(certainty) for certainty in (0.0, 3.0)}
    assert tellings[0.0] > 20, "each of which goes to all nodes of the mesh"
    assert tellings[3.0] <= 3


def _tellings(certainty: float) -> int:
    """How often the cost of a noisy link is told in 300 s."""
    world = World(Settings(adaptive=False, advertised=("default",), certainty=certainty))
    slower_ms, noise, tellings = 0.0, world.noisy(0.6, 0.4), 0
    world.link(1, lambda at: (noise(at) or 0.0) + slower_ms)
    world.run(20)
    for _ in range(300):
        readings = world.run(1)
        if not tellings or readings:
            tellings += 1
            reading = world.initiator.reading(1)
            assert reading is not None
            cost = of(reading.metrics)
            world.initiator.quiet(1, [(cost, max(0.1 * cost, 0.5))], reading.metrics)
    slower_ms = 50.0
    _, reading = world.run(2.1)[0]
    assert reading.restarted
    assert of(reading.metrics) > 20
    return tellings


def test_readings_of_a_formula_without_coefficients_are_all_told() -> None:
    register("twice", "2 * latency_ms")
    try:
        world = World(Settings(adaptive=False, profile="twice", advertised=("twice",)))
        world.link(1, 20.0)
        world.run(3)
        world.initiator.quiet(1, [(20.0, 1.0)], Metrics(10.0))
        assert len(world.run(3)) >= 2
        assert world.initiator.history(1)[-1]["cost"] == pytest.approx(20.0)
    finally:
        del PROFILES["twice"]
