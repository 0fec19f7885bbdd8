"""Each attack of `chappe bench hostile` in its shortest form: it gains nothing, honest clients notice nothing of it,
and the node names who did it."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator

import pytest

from bench.hostile import ATTACKS
from bench.hostile.attack import Attack, Effort, Target, unseen_after
from bench.hostile.identities import BorrowedName
from bench.hostile.measured import measure
from bench.hostile.node import HostileNode, attacked_node
from bench.hostile.wire import Wire
from chappe.wire import control

pytestmark = pytest.mark.timeout(120)

SHORT = Effort(seconds=1.0, acts=3_000)


@pytest.fixture
def node() -> Iterator[HostileNode]:
    """Of its own for each attack: whoever has attacked before has used up its share of the loop."""
    with attacked_node() as node:
        yield node


class Honest(threading.Thread):
    """Publishes and reads until it is stopped; everything that it published must arrive once, in order."""

    def __init__(self, target: Target) -> None:
        super().__init__(name="honest", daemon=True)
        token = target.tokens["honest"]
        self.publisher = Wire.open(target.tcp, name="honest", token=token)
        self.subscriber = Wire.open(target.tcp, name="honest", token=token)
        self.subscriber.ask(control.Subscribe, pattern="bench/stream")
        self.sent = 0
        self.over = threading.Event()
        self.problem = ""

    def run(self) -> None:
        try:
            while not self.over.is_set():
                for _ in range(10):
                    self.publisher.publish("bench/stream", str(self.sent).encode())
                    self.sent += 1
                self.publisher.flush()
                self.subscriber.await_events(self.sent, 30.0)
                self.over.wait(0.002)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def end(self) -> None:
        self.over.set()
        self.join(60)
        bodies = [event.body for event in self.subscriber.await_events(self.sent, 5.0)]
        self.publisher.close()
        self.subscriber.close()
        assert not self.problem
        assert bodies == [str(number).encode() for number in range(self.sent)]


@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.__name__)
def test_an_attack_gains_nothing_and_is_seen(node: HostileNode, kind: type[Attack]) -> None:
    attack = kind(node.target)
    attack.prepare()
    try:
        node.evidence.mark()
        honest = Honest(node.target)
        honest.start()
        try:
            tally = attack.strike(SHORT)
            unseen = unseen_after(attack, node.evidence)
        finally:
            honest.end()
    finally:
        attack.release()
    assert tally.acts > 0
    assert tally.succeeded == []
    assert unseen == []
    assert node.running.process.poll() is None
    with urllib.request.urlopen(node.evidence.metrics_url, timeout=20) as answer:
        assert answer.status == 200


def test_the_bench_measures_a_stream_beside_an_attack() -> None:
    outcome = measure(BorrowedName, pairs=2, within_s=60.0)
    assert len(outcome.rates) == len(outcome.p99) == 2
    assert outcome.acts > 0
    assert outcome.lost == 0
    assert (outcome.succeeded, outcome.unseen) == ([], [])
