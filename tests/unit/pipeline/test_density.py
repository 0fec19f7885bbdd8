"""Clusters and outliers by density: what is found, what is not, and that owners of regions find the same."""

from __future__ import annotations

import numpy as np
import pytest

from bench.clusters import PRINTED, States, states
from chappe.pipeline import density, regions
from chappe.pipeline.curve import Arcs
from chappe.pipeline.density import ALONE, Rule

SIZE = 1 << 16


def _near(place: tuple[float, ...], count: int, spread: float = 3.0, seed: int = 1) -> np.ndarray:
    return np.array(place) + np.random.default_rng(seed).uniform(-spread, spread, (count, len(place)))


@pytest.mark.spec("SJ-10", "CN-107", "CN-108")
def test_two_clusters_and_one_that_stands_alone() -> None:
    where = np.concatenate([_near((50, 50), 40), _near((200, 180), 40), [(120.0, 20.0)]])
    found = density.judge(where, np.arange(81), Rule())
    assert found.cluster[-1] == ALONE
    assert found.near[-1] == 1
    assert len(set(found.cluster[:40])) == len(set(found.cluster[40:80])) == 1
    assert found.cluster[0] != found.cluster[40]
    centroids = density.centroids(where, found.cluster, 10.0)
    assert centroids.weight.sum() == 80
    assert np.abs(centroids.where - np.array([(50, 50), (200, 180)])[centroids.cluster]).max() < 5


def test_a_peer_that_repeats_itself_is_no_cluster() -> None:
    where = np.concatenate([_near((50, 50), 40), np.full((50, 2), 200.0)])
    peer = np.concatenate([np.arange(40), np.full(50, 40)])
    found = density.judge(where, peer, Rule())
    assert (found.cluster[40:] == ALONE).all()
    assert (found.cluster[:40] != ALONE).all()
    different = density.judge(where, np.arange(90), Rule())
    assert (different.cluster != ALONE).all()


@pytest.mark.spec("CN-109")
def test_a_long_cluster_has_several_centroids() -> None:
    along = np.linspace(10, 240, 400)
    where = np.stack((along, 100 + np.random.default_rng(2).uniform(-2, 2, 400)), axis=1)
    found = density.judge(where, np.arange(400), Rule())
    assert set(found.cluster.tolist()) == {0}
    centroids = density.centroids(where, found.cluster, 10.0)
    assert 10 <= len(centroids.where) <= 14
    assert (np.diff(np.sort(centroids.where[:, 0])) < 25).all()
    assert centroids.radius.max() < 15


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_any_number_of_dimensions(dimensions: int) -> None:
    where = np.concatenate([_near((100.0,) * dimensions, 60, 2.0), np.full((1, dimensions), 200.0)])
    found = density.judge(where, np.arange(61), Rule())
    assert (found.cluster[:60] == 0).all()
    assert found.cluster[60] == ALONE


def test_rows_with_weights_are_that_many_points() -> None:
    where = _near((50, 50), 30)
    weight = np.arange(1.0, 31.0)
    repeated = np.repeat(np.arange(30), np.arange(1, 31))
    one = density.judge(where, np.arange(30), Rule(), weight)
    many = density.judge(where[repeated], repeated, Rule())
    assert (one.cluster[repeated] == many.cluster).all()
    assert density.centroids(where, one.cluster, 10.0, weight).weight.sum() == weight.sum()
    assert density.centroids(where, one.cluster, 10.0, weight).where == pytest.approx(
        density.centroids(where[repeated], many.cluster, 10.0).where
    )


def test_nothing_and_one_point() -> None:
    assert len(density.judge(np.zeros((0, 2)), [], Rule()).cluster) == 0
    assert density.judge([(1.0, 2.0)], [0], Rule()).cluster.tolist() == [ALONE]
    assert len(density.centroids(np.zeros((0, 2)), [], 10.0).where) == 0


@pytest.mark.spec("CN-134")
def test_sensitivity_can_be_chosen() -> None:
    where, peer = np.concatenate([_near((50, 50), 40), _near((200, 180), 3)]), np.arange(43)
    assert (density.judge(where, peer, Rule()).cluster[40:] != ALONE).all()
    assert (density.judge(where, peer, Rule(least=4)).cluster[40:] == ALONE).all()
    assert (density.judge(where, peer, Rule(noise=1.0, doubt=1e-6)).cluster[40:] == ALONE).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"reach": 0.0}, "reach"), ({"reach": 300.0}, "reach"), ({"noise": 0.0}, "shares"), ({"least": 1}, "least")],
)
def test_a_rule_that_cannot_be_says_so(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Rule(**settings)


@pytest.mark.spec("CN-110", "CN-111", "CN-116")
@pytest.mark.parametrize(("shape", "peers", "seed"), [("points", 40, 1), ("lines", 60, 2), ("points", 100, 3)])
def test_owners_of_regions_who_only_send_notices_find_the_same(shape: str, peers: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    window = states(shape, peers, 20.0, random)
    edge = density.side(10.0, 2)
    total = int(density.cells(window.where, window.peer, np.ones(len(window.where)), edge).peers.nnz)
    arcs = Arcs.at(random.choice(SIZE, peers, replace=False), SIZE)
    together = density.judge(window.where, window.peer, Rule()).cluster == ALONE
    apart = regions.exchanged(window.where, window.peer, arcs, Rule(), total)
    assert (apart.alone == together).all()
    assert 0 < together.sum() < len(together)
    assert 0 < apart.notices < 60 * peers


@pytest.mark.spec("CN-103", "CN-107", "CN-110", "CN-111")
def test_the_rule_of_the_source_by_strategy_of_its_notices() -> None:
    """The more neighbours hear of a centroid, the fewer outliers lie near one; with the whole box there are none."""
    near = {}
    for strategy in regions.STRATEGIES:
        count = 0
        for seed in range(3):
            random = np.random.default_rng(seed)
            window = states("lines", 200, 20.0, random)
            arcs = Arcs.at(random.choice(SIZE, 200, replace=False), SIZE)
            found = regions.by_regions(window.where, arcs, regions.Thresholds(notices=strategy))
            apart = np.linalg.norm(window.where[found.alone][:, None] - found.centroids[None], axis=2).min(axis=1)
            count += int((apart <= 10.0).sum())
        near[strategy] = count
    assert near["none"] > near["ring"] > near["axis"] >= near["box"] == 0
    with pytest.raises(ValueError, match="ring"):
        regions.Thresholds(notices="all")


@pytest.mark.spec("SJ-10", "CN-118", "CN-119", "CN-120")
def test_the_six_set_ups_of_the_source() -> None:
    for shape, peers in PRINTED:
        windows: list[States] = [
            states(shape, peers, width, np.random.default_rng([seed, peers, int(width)]))
            for width in (10.0, 20.0, 30.0)
            for seed in range(8)
        ]
        alone = [density.judge(each.where, each.peer, Rule()).cluster == ALONE for each in windows]
        far = sum(int(each.far.sum()) for each in windows)
        found = sum(int((each.far & out).sum()) for each, out in zip(windows, alone, strict=True))
        false = sum(int((out & ~each.injected).sum()) for each, out in zip(windows, alone, strict=True))
        assert found >= 0.95 * far, (shape, peers, found, far)
        assert false <= 0.02 * sum(len(each.where) for each in windows), (shape, peers, false)
