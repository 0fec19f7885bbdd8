"""`chappe bench redundancy`: routers killed on the way of a stream, with two disjoint paths and with one."""

from __future__ import annotations

import os
import signal
import time

from bench.mesh import Mesh, topology
from bench.progress import steps
from bench.registry import Own
from bench.report import Options, Report
from bench.streams import Sink, Stream
from chappe.errors import TimeoutExpired

ROUTERS = ("e0", "a1", "a2", "b1", "b2", "e1")
INTERIOR = ROUTERS[1:5]
CHANNELS = [("e0", "a1"), ("a1", "a2"), ("a2", "e1"), ("e0", "b1"), ("b1", "b2"), ("b2", "e1")]
TOPICS, PERIOD_NS = 100, 10_000_000  # 10,000 events a second; stamps are nominal, so that none is there twice
RESUME_S = 3.0


def run(options: Options, own: Own) -> Report:
    """Kill every interior router in turn; then the only path of a stream."""
    report = Report("redundancy")
    row = ("e0", "m", "e1")
    with steps(options.console, "redundancy", 2) as step:
        step("two paths")
        with Mesh(topology({"cloud": ROUTERS}, CHANNELS, inner=INTERIOR)) as mesh:
            _two_paths(options, report, mesh)
        step("one path")
        with Mesh(topology({"cloud": row}, [("e0", "m"), ("m", "e1")], inner=["m"])) as mesh:
            _one_path(options, report, mesh)
    return report


def _two_paths(options: Options, report: Report, mesh: Mesh) -> None:
    lost = repeated = late = sent = 0
    for name in INTERIOR[:1] if options.quick else INTERIOR:
        sink = Sink(mesh.port("e1"), redundancy=2)
        with Stream(
            mesh.port("e0"), [sink], topics=TOPICS, period_ns=PERIOD_NS, nominal=True, capture=64 << 20
        ) as stream:
            stream.start()
            time.sleep(1.0)
            os.kill(mesh.pid(name), signal.SIGKILL)
            time.sleep(1.0 if options.quick else 3.0)
            mesh.restart(name)
            time.sleep(1.0)
            account = stream.account()
        report.show(f"two paths, {name} killed: sent", account.sent, "events")
        lost, repeated, sent = lost + account.lost, repeated + account.repeated, sent + account.sent
        late += account.reordered
    report.compare(f"two disjoint paths, a router killed: lost of {sent:,}", lost, "events", "==", 0)
    report.compare("two disjoint paths, a router killed: delivered twice", repeated, "events", "==", 0)
    report.show("two disjoint paths, a router killed: after a later one, by the slower path", late, "events")


def _one_path(options: Options, report: Report, mesh: Mesh) -> None:
    spans = []
    for _ in range(options.repeats):
        with Stream(
            mesh.port("e0"), [Sink(mesh.port("e1"))], topics=TOPICS, period_ns=PERIOD_NS, nominal=True
        ) as stream:
            stream.start()
            time.sleep(1.0)
            os.kill(mesh.pid("m"), signal.SIGKILL)
            time.sleep(0.5)
            before = stream.reading().received[0]
            mesh.restart("m")  # returns when it serves
            serving = time.monotonic()
            _until_more(stream, before)
            spans.append(time.monotonic() - serving)
    report.compare(
        "one path, its router killed and restarted: stream resumes after it serves", max(spans), "s", "<=", RESUME_S
    )


def _until_more(stream: Stream, before: int, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while stream.reading().received[0] <= before:
        if time.monotonic() > deadline:
            raise TimeoutExpired(f"the stream did not resume within {within_s:g} s")
        time.sleep(0.002)
