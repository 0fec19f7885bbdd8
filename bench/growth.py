"""`chappe bench growth`: CPU for each event as variables, topic subscriptions and connected subscribers grow."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

from bench import charts, peers
from bench.engine_load import event_buffers, pump, status_buffers, status_engine, topic_engine
from bench.load import Row, measure
from bench.peers.common import Running, running
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, spread
from chappe.engine._engine import Engine

VARIABLES = (1_000, 10_000, 100_000, 1_000_000)
SUBSCRIPTIONS = (100, 1_000, 10_000, 100_000, 1_000_000)
SUBSCRIBERS = (1, 10, 100, 1_000)
EXPONENT = 0.2
Points = list[tuple[float, float]]


def run(options: Options, own: Own) -> Report:
    """Engine alone for the tables, a real node for connections."""
    report = Report("growth")
    ceiling = Ceiling()
    shorter = 1 if options.quick else None
    lines = {
        f"variables, {layout} table": _variables(options, report, ceiling, layout, VARIABLES[: _upto(shorter, 3)])
        for layout in ("sparse", "close")
    }
    report.charts.append(
        charts.curves(options.charts / "growth-variables.png", "CPU a status event", "variables", "ns", lines)
    )
    topics = _subscriptions(options, report, ceiling, SUBSCRIPTIONS[: _upto(shorter, 4)])
    report.charts.append(
        charts.curves(
            options.charts / "growth-topics.png",
            "CPU a message of two deliveries",
            "subscriptions",
            "ns",
            {"topics": topics},
        )
    )
    if peers.named("chappe").find() is not None:
        connected = _subscribers(options, report, ceiling, SUBSCRIBERS[: _upto(shorter, 3)])
        if connected:
            report.charts.append(
                charts.curves(
                    options.charts / "growth-subscribers.png",
                    "Node CPU a delivered message",
                    "subscribers",
                    "ns",
                    {"64 B, 1 -> N": connected},
                )
            )
    for name, points in (*lines.items(), ("topic subscriptions", topics)):
        report.compare(f"exponent of CPU an event over {name}", charts.exponent(points), "", "<", EXPONENT)
    return report


def _upto(shorter: int | None, quick: int) -> int | None:
    return quick if shorter else None


def _variables(options: Options, report: Report, ceiling: Ceiling, layout: str, sizes: Sequence[int]) -> Points:
    events = 100_000 if options.quick else 1_000_000
    points: Points = []
    for size in sizes:
        engine, inward, outward = status_engine(size, "close" if layout == "close" else "sparse")
        sent = max(events, size)
        buffers = status_buffers(size, sent, size)
        gc.collect()

        measured = partial(_status_cost, engine, inward, outward, buffers, sent)
        points.append((size, _point(options, report, ceiling, f"{size:,} variables, {layout} table", measured)))
    return points


def _subscriptions(options: Options, report: Report, ceiling: Ceiling, sizes: Sequence[int]) -> Points:
    messages = 20_000 if options.quick else 200_000
    points: Points = []
    for size in sizes:
        engine, inward, outward, topics = topic_engine(size)
        definitions, _ = event_buffers(topics, 1, size)
        engine.feed(inward, definitions)
        _, buffers = event_buffers(topics, messages, size)
        measured = partial(_event_cost, engine, inward, outward, buffers, messages, count())
        points.append((size, _point(options, report, ceiling, f"{size:,} topic subscriptions", measured)))
    return points


def _status_cost(engine: Engine, inward: int, outward: int, buffers: list[bytes], events: int) -> float:
    return pump(engine, inward, (outward,), buffers, events) / events * 1e9


def _event_cost(
    engine: Engine, inward: int, outward: list[int], buffers: list[bytes], messages: int, turns: Iterator[int]
) -> float:
    shift = next(turns) * messages
    later = [_renumbered(buffer, shift) for buffer in buffers]
    return pump(engine, inward, outward, later, messages * 2) / messages * 1e9


def _renumbered(buffer: bytes, shift: int) -> bytes:
    """The same events with later sequences: an engine drops what it has had from an issuer."""
    changed, frame = bytearray(buffer), 80
    for at in range(12, len(changed), frame):
        changed[at : at + 4] = (int.from_bytes(changed[at : at + 4], "big") + shift).to_bytes(4, "big")
    return bytes(changed)


def _subscribers(options: Options, report: Report, ceiling: Ceiling, sizes: Sequence[int]) -> Points:
    points: Points = []
    with running(peers.named("chappe")) as node:
        for size in sizes:
            # The whole window of all subscribers fits the queues of the node.
            row = Row(f"1 -> {size}", subscribers=size, window=4096, measured_s=0.3 if options.quick else 0.8)

            measured = partial(_delivery_cost, report, node, row)
            points.append((size, _point(options, report, ceiling, f"{size:,} connected subscribers", measured)))
    return [point for point in points if point[1] == point[1]]


def _delivery_cost(report: Report, node: Running, row: Row) -> float:
    figures = measure(node, row)
    if not figures.whole:
        report.note(f"{row.name}: lost {figures.lost}, reordered {figures.reordered}, dropped {figures.dropped}")
    return figures.cpu_ns


def _point(options: Options, report: Report, ceiling: Ceiling, name: str, measured: Callable[[], float]) -> float:
    rounds: Rounds[str, float] = Rounds(report, options.console, ceiling)
    rounds.run(options.repeats + 1, [name], lambda _: measured(), "growth")
    series = rounds.values.get(name, [])[1:] or rounds.values.get(name, [])  # the first round warms caches
    report.show(f"{name}: CPU", median(series), "ns a message")
    report.show(f"{name}: spread", spread(series) * 100, "%")
    return median(series)
