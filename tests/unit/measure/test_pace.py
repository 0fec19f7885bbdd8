"""How often links are measured: by round trip, by number, by load, by who asks, and by how steady they are."""

from __future__ import annotations

import pytest

from chappe.measure.initiator import Settings
from tests.unit.measure.world import MS, SECOND, World


@pytest.mark.spec("MR-068")
def test_the_interval_is_adjustable() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, 20.0)
    world.link(2, 20.0)
    world.run(5)
    world.initiator.interval(SECOND // 5)
    world.initiator.interval(3 * SECOND, 2)
    world.run(10)
    assert world.gaps(1, since=6.0) == pytest.approx([0.2] * len(world.gaps(1, since=6.0)))
    assert world.gaps(2, since=5.0) == pytest.approx([3.0] * len(world.gaps(2, since=5.0)))
    for wrong in (0, -1, 61 * SECOND, 5 * MS):
        with pytest.raises(ValueError, match="choose one from 10 to 60000 ms"):
            world.initiator.interval(wrong)
    assert world.initiator.interval_ns(1) == SECOND // 5
    world.initiator.interval(0, 2)
    assert world.initiator.interval_ns(2) == SECOND // 5


@pytest.mark.spec("MR-069")
def test_many_links_are_measured_less_often_each() -> None:
    world = World(awake=False)
    for link in range(5000):
        world.link(link, 20.0)
    assert world.initiator.interval_ns() == 2.5 * SECOND
    for link in range(1000, 5000):
        world.initiator.switch(link, False)
    assert world.initiator.interval_ns() == SECOND  # those that are off do not count
    for link in range(1000):
        world.initiator.remove(link)
    assert world.initiator.interval_ns() == SECOND


@pytest.mark.spec("MR-069")
def test_a_far_or_loaded_link_is_measured_less_often() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, lambda at: 20.0 if at < 20 else 500.0)  # its queue fills
    world.run(18)
    assert world.initiator.interval_ns(1) == SECOND
    world.run(80)
    assert world.initiator.interval_ns(1) == pytest.approx(3 * SECOND, rel=0.02)
    assert world.gaps(1, since=80.0)[-1] == pytest.approx(3.0, rel=0.02)


@pytest.mark.spec("MR-069")
def test_probes_use_a_small_share_of_a_slow_link() -> None:
    settings = Settings(adaptive=False)
    world = World(settings)
    world.link(1, 20.0)
    world.initiator.bandwidth(1, 1200.0)  # 9600 bit/s
    world.run(200)
    bytes_per_s = settings.probe_bytes * len(world.times(1, since=20.0)) / 180
    assert bytes_per_s <= 1.1 * settings.share * 1200.0


@pytest.mark.spec("MR-071")
def test_a_steady_link_is_left_alone_for_longer_and_longer() -> None:
    world = World()
    world.link(1, world.noisy(20.0, 0.01))
    world.run(200)
    gaps = world.gaps(1)
    assert gaps[5] == pytest.approx(1.0)
    assert gaps[-1] == pytest.approx(8.0)
    assert [min(gaps, key=lambda gap: abs(gap - step)) for step in (1, 2, 4, 8)] == pytest.approx([1, 2, 4, 8])
    assert len(gaps) < 60


@pytest.mark.spec("MR-071")
def test_a_steady_link_that_changes_is_back_at_once_and_known_soon() -> None:
    world = World()
    world.link(1, lambda at: 20.0 if at < 200 else 120.0)
    world.run(200)
    readings = world.run(15)
    first = next(at for at in world.times(1) if at >= 200)
    told = next(at for at, reading in readings if reading.metrics.latency_ms > 50)
    assert told < first + 0.4  # two round trips and the time between the probes
    assert next(reading for at, reading in readings if at == told).restarted
    assert world.gaps(1, since=first)[1:6] == pytest.approx([1.0] * 5, abs=0.05)  # half a slot


def test_one_spike_brings_one_more_probe_and_the_base_interval() -> None:
    world = World()
    world.link(1, lambda at: 120.0 if 200 <= at < 208 else 20.0)
    world.run(199.9)
    world.initiator.interval(SECOND, 1)
    steady = [gap for gap in world.gaps(1) if gap > 3]
    assert steady
    world = World()
    spike = iter([20.0] * 60 + [120.0] + [20.0] * 1000)
    world.link(1, lambda at: next(spike))
    world.run(400)
    latencies = [reading.metrics.latency_ms for _, reading in world.readings]
    assert max(latencies) < 11
    assert not any(reading.restarted for _, reading in world.readings)
    assert min(world.gaps(1)[50:]) == pytest.approx(0.05 + 0.12, abs=0.03)


def test_a_lost_probe_brings_the_base_interval_back() -> None:
    world = World()
    lost = iter([20.0] * 60 + [None] + [20.0] * 1000)
    world.link(1, lambda at: next(lost), lossy=True)
    world.run(400)
    gaps = world.gaps(1)
    slow = next(at for at, gap in enumerate(gaps) if gap == pytest.approx(8.0))
    again = next(at for at, gap in enumerate(gaps) if at > slow and gap < 2)
    assert gaps[again + 1 : again + 8] == pytest.approx([1.0] * 7)


@pytest.mark.spec("MR-070")
def test_extreme_links_are_measured_less() -> None:
    world = World(Settings(steps=(1.0, 2.0, 4.0, 8.0)))
    for link in range(40):
        world.link(link, world.noisy(20.0 + 2 * link, 0.005))
    world.run(30)
    probes = {link: len(world.times(link)) for link in range(40)}
    middle = [probes[link] for link in range(5, 35)]
    for extreme in (0, 39):
        assert probes[extreme] < min(middle)


@pytest.mark.spec("MR-070")
def test_what_is_extreme_may_be_said_by_the_realm() -> None:
    world = World()
    world.initiator.extremes(5.0, 200.0)
    world.link(1, 4.0)
    world.link(2, 40.0)
    world.run(25)
    assert world.initiator.interval_ns(1) == 8 * SECOND
    assert world.initiator.interval_ns(2) <= 4 * SECOND


def test_a_link_that_carries_traffic_is_never_slower_than_every_second_interval() -> None:
    world = World()
    world.link(1, 20.0)
    world.link(2, 20.0)
    world.initiator.carries(1, True)
    world.run(200)
    assert max(world.gaps(1)) <= 2.0
    assert max(world.gaps(2)) == pytest.approx(8.0)
    world.initiator.carries(2, True)  # begins while it was slow
    world.run(20)
    assert max(world.gaps(2, since=200.0)) <= 2.0
    assert world.times(2, since=200.0)[0] < 202.0


def test_a_change_on_a_link_with_traffic_is_known_within_two_base_intervals() -> None:
    worst = 0.0
    for seed in range(16):
        world = World(seed=seed)
        changes_at = 150 + seed / 8
        world.link(1, lambda at, changes_at=changes_at: 10.0 if at < changes_at else 110.0)  # type: ignore[misc]
        world.initiator.carries(1, True)
        world.run(changes_at)
        told = next(at for at, reading in world.run(10) if reading.metrics.latency_ms > 50)
        worst = max(worst, told - changes_at)
    assert 1.0 < worst < 2.0


@pytest.mark.spec("MR-072")
def test_either_end_may_slow_measuring_down_or_stop_it() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, 20.0)
    world.run(5)
    world.initiator.limit_pace(1, 4 * SECOND)  # the other end
    world.run(20)
    assert world.gaps(1, since=5.0) == pytest.approx([4.0] * len(world.gaps(1, since=5.0)))
    world.initiator.limit_pace(1, 0)
    world.run(10)
    assert world.times(1, since=25.0) == []
    assert world.initiator.enabled(1) == []
    world.initiator.limit_pace(1, None)
    world.run(5)
    assert len(world.times(1, since=35.0)) >= 5
    world.initiator.interval(2 * SECOND, 1)  # this end
    world.run(10)
    assert world.gaps(1, since=43.0) == pytest.approx([2.0] * len(world.gaps(1, since=43.0)))
    world.initiator.switch(1, False)
    world.run(5)
    assert world.times(1, since=50.1) == []


def test_adaptation_can_be_switched_off() -> None:
    world = World(Settings(adaptive=False))
    world.link(1, 20.0)
    world.run(100)
    assert max(world.gaps(1)) <= 1.5
    assert len(world.sent) >= 99
