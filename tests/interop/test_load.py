"""The load generator against real brokers: every message arrives, once, in order, in the protocol of each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench import peers
from bench.load import Row, measure, ping_pong
from bench.peers.common import Peer, running

PEERS = [pytest.param(peer, id=peer.name) for peer in peers.ALL]
MESSAGES = 20_000


def present(peer: Peer) -> Peer:
    if peer.find() is None:
        pytest.skip(f"{peer.name} is missing: {peer.install}")
    return peer


@pytest.mark.parametrize("peer", PEERS)
def test_every_message_arrives_once_and_in_order(peer: Peer) -> None:
    with running(present(peer)) as broker:
        for subscribers, topics in ((1, 1), (3, 50)):
            figures = measure(broker, Row("all", subscribers=subscribers, topics=topics, limit=MESSAGES))
            assert figures.delivered == MESSAGES * subscribers
            assert figures.whole
            assert sum(figures.histogram) == figures.delivered
            assert figures.cpu_ns >= 0  # in ticks of the kernel: a short run may cost none


@pytest.mark.parametrize("peer", PEERS)
def test_many_publishers_that_send_one_message_a_write(peer: Peer) -> None:
    with running(present(peer)) as broker:
        row = Row("single", publishers=10, subscribers=2, topics=10, batch_bytes=1, limit=2_000)
        figures = measure(broker, row)
        assert figures.delivered == 4_000
        assert figures.whole


@pytest.mark.parametrize("peer", PEERS)
def test_ping_pong_returns_each_message(peer: Peer) -> None:
    with running(present(peer)) as broker:
        figures = ping_pong(broker, Row("ping-pong", rounds=100))
        assert sum(figures.histogram) == 100
        assert 0 < figures.p50_us <= figures.p99_us < 1e6


@pytest.mark.parametrize("peer", [param for param in PEERS if param.values[0].tls])  # type: ignore[union-attr]
def test_every_message_arrives_over_tls(peer: Peer) -> None:
    with running(present(peer), tls=True) as broker:
        figures = measure(broker, Row("tls", subscribers=2, topics=10, limit=MESSAGES))
        assert figures.delivered == MESSAGES * 2
        assert figures.whole
        assert sum(ping_pong(broker, Row("ping-pong", rounds=50)).histogram) == 50


def test_a_paced_publisher_keeps_its_rate() -> None:
    with running(present(peers.named("nats-server"))) as broker:
        figures = measure(broker, Row("paced", rate=20_000, warm_s=0.1, measured_s=0.5))
        assert figures.whole
        assert figures.delivered_per_s == pytest.approx(20_000, rel=0.1)


@pytest.mark.spec("GS-171")
def test_closed_loop_reference_stream_beside_load_gives_a_histogram() -> None:
    """One clock sees both ends of the reference stream; a load stream keeps the node busy meanwhile."""
    chappe = present(peers.named("chappe"))
    with running(chappe) as node, ThreadPoolExecutor(1) as beside:
        load = beside.submit(measure, node, Row("load", measured_s=1.0, rate=50_000))
        loaded = ping_pong(node, Row("ping-pong", rounds=300))
        assert load.result().whole
        alone = ping_pong(node, Row("ping-pong", rounds=300))
    for figures in (loaded, alone):
        assert sum(figures.histogram) == 300
        assert 0 < figures.p50_us <= figures.p99_us
