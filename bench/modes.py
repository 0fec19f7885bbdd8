"""`chappe bench modes`: a mode change over 20 routers and 10,000 subscriptions, watched from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from bench.mesh import Mesh, ask, rows, topology
from bench.progress import followed
from bench.protocols import Link, chappe
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import median
from bench.streams import Sink, Stream
from chappe.status.topology import ChannelSpec, Topology
from chappe.wire import control
from chappe.wire.management import ChangeMode

INNER = tuple(f"r{number}" for number in range(10))
EDGES = tuple(f"e{number}" for number in range(10))
SUBSCRIPTIONS, QUICK_SUBSCRIPTIONS = 10_000, 300
TOPICS, PERIOD_NS = 100, 10_000_000  # 10,000 events a second
SLOW_NS = 1_000_000_000
NARROW = ("r0", "e0")  # the channel that cannot carry both modes at once
NARROW_BYTES_PER_S = 2.5 * TOPICS * 1e9 / PERIOD_NS * 24  # a stream of both modes and one of either, not of both
WINDOW_S = 0.5


def grid() -> Topology:
    """Ten edges around a ring of ten inner routers with chords."""
    ring = [(INNER[at], INNER[(at + 1) % 10]) for at in range(10)] + [(INNER[at], INNER[at + 5]) for at in range(5)]
    made = topology({"cloud": (*EDGES, *INNER)}, [*ring, *zip(INNER, EDGES, strict=True)], inner=INNER)
    return msgspec.structs.replace(made, channel=tuple(_narrowed(channel) for channel in made.channel))


def _narrowed(channel: ChannelSpec) -> ChannelSpec:
    if channel.between != NARROW:
        return channel
    return msgspec.structs.replace(channel, bytes_per_s=NARROW_BYTES_PER_S)


@dataclass
class Watch:
    """The load of a channel in windows, from the counters of the router that sends on it."""

    most_bytes_per_s: float = 0.0
    _samples: list[tuple[float, int]] = field(default_factory=list)

    def note(self, at: float, events: int) -> None:
        self._samples.append((at, events))
        while self._samples[-1][0] - self._samples[0][0] > WINDOW_S:
            first, count = self._samples.pop(0)
            self.most_bytes_per_s = max(self.most_bytes_per_s, (events - count) * 24 / (at - first))


def run(options: Options, own: Own) -> Report:
    """Changes there and back; then one with a dead edge."""
    report = Report("modes")
    count = QUICK_SUBSCRIPTIONS if options.quick else SUBSCRIPTIONS
    with Mesh(grid()) as mesh, contextlib.ExitStack() as stack:
        source = mesh.port("e5")
        near = mesh.port("e0")
        both = stack.enter_context(
            Stream(source, [Sink(near), Sink(mesh.port("e3"))], topics=TOPICS, period_ns=PERIOD_NS, nominal=True)
        )
        stack.enter_context(
            Stream(source, [Sink(near, modes=1)], topics=TOPICS, period_ns=PERIOD_NS, nominal=True)
        ).start()
        stack.enter_context(
            Stream(source, [Sink(near, modes=2)], topics=TOPICS, period_ns=PERIOD_NS, nominal=True)
        ).start()
        both.start()
        links = stack.enter_context(_subscribed(mesh, count - 4 * TOPICS))
        report.show("subscriptions", count, "")
        spans = []
        with _watching(mesh) as watch:
            time.sleep(1.0)
            for turn in followed(options.console, "modes", range(max(2, options.repeats + 1)), "change {}".format):
                spans.append(_change(mesh, 1 - turn % 2))
                time.sleep(0.5)
        account = both.account()
        report.compare("mode change over 20 routers: median of all", median(spans), "s", "<", 2)
        report.compare(f"lost on streams in both modes, of {account.sent * 2:,}", account.lost, "events", "==", 0)
        report.compare("repeated or out of order on streams in both modes", account.reordered, "events", "==", 0)
        report.compare(
            "narrow channel during all changes: most in half a second, of its capacity",
            watch.most_bytes_per_s / NARROW_BYTES_PER_S, "times", "<=", 1,
        )  # fmt: skip
        _dead_edge(report, mesh)
        for link in links:
            link.sock.close()
    return report


@contextlib.contextmanager
def _subscribed(mesh: Mesh, count: int) -> Iterator[list[Link]]:
    """Slow variables of every edge, watched everywhere: a third in mode 0, a third in mode 1, a third in both."""
    links = [chappe.connect(("127.0.0.1", mesh.port(name)), None) for name in EDGES]
    each = count // len(EDGES)
    for name, link in zip(EDGES, links, strict=True):
        chappe.ask(link, [
            control.Register(id=at + 1, publisher=f"slow-{name}", variable=f"v{at}", rate_num=1, rate_den=SLOW_NS)
            for at in range(each)
        ])  # fmt: skip
    for at, link in enumerate(links):
        publisher = f"slow-{EDGES[(at + 3) % len(EDGES)]}"
        chappe.ask(link, [
            control.Watch(
                id=each + 1 + number, publisher=publisher, variable=f"v{number}", modes=(1, 2, 3)[number % 3],
                qos=(control.Qos(SLOW_NS),),
            )
            for number in range(each)
        ])  # fmt: skip
    try:
        yield links
    finally:
        for link in links:
            link.sock.close()


@contextlib.contextmanager
def _watching(mesh: Mesh) -> Iterator[Watch]:
    """Read the counter of the narrow channel as often as it answers."""
    watch, over = Watch(), threading.Event()

    def look() -> None:
        link = chappe.connect(("127.0.0.1", mesh.port(NARROW[0])), None)
        while not over.is_set():
            (row,) = [row for row in rows(link, "links") if row["name"] == NARROW[1]]
            watch.note(time.monotonic(), row["status_out"])
            time.sleep(0.01)
        link.sock.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _change(mesh: Mesh, mode: int) -> float:
    with mesh.operator("cloud") as link:
        start = time.monotonic()
        ask(link, ChangeMode(id=0, mode=mode))
        return time.monotonic() - start


def _dead_edge(report: Report, mesh: Mesh) -> None:
    """A stopped edge answers nothing: the change ends by its time-out, everybody else has the new mode."""
    pid = mesh.pid("e9")
    os.kill(pid, signal.SIGSTOP)
    try:
        with mesh.operator("cloud") as link:
            before = rows(link, "modes")[0]["mode"]
            start = time.monotonic()
            link.serial += 1
            request = ChangeMode(id=link.serial, mode=3 - before)
            link.sock.sendall(chappe.frame(chappe.CONTROL, control.encode(request)))
            answer = chappe.next_message(link)
            span = time.monotonic() - start
            (after,) = rows(link, "modes")
        report.note(f"with a stopped edge: {type(answer).__name__}: {getattr(answer, 'reason', '')}")
        report.compare("mode change with a dead edge: ends within", span, "s", "<=", 6)
        settled = after["mode"] == 3 - before and after["next"] is None
        report.compare("mode change with a dead edge: the broker is in the new mode", settled, "", "==", 1)
    finally:
        os.kill(pid, signal.SIGCONT)
