"""Broken promises are counted by subject and kind, told in one event, and kept while the queue is full."""

from __future__ import annotations

import pytest

from chappe.archive.feeds import FEEDS
from chappe.client import reporting
from chappe.client.reporting import OTHERS, SUBJECTS, Breaches, QualityReporter
from tests.support.nodes import eventually


class Someone:
    name = "desk"
    mode = 2


def rows(body: bytes, topic: str = "quality/desk") -> list[dict[str, object]]:
    return FEEDS["quality"].rows(topic, body, 1)


def test_a_flood_is_one_breach_with_a_count() -> None:
    breaches = Breaches()
    for number in range(1000):
        breaches.add("p/v", "late", number, latency_ns=(number * 7) % 1000, detail={"mode": 0})
    breaches.add("p/v", "missed", 5, count=3)
    late, missed = rows(breaches.body())
    assert (late["count"], late["latency_ns"], late["created_ns"], late["detail"]) == (1000, 999, 999, '{"mode":0}')
    assert (missed["count"], missed["latency_ns"], missed["detail"]) == (3, None, None)


def test_subjects_are_bounded() -> None:
    breaches = Breaches()
    for number in range(SUBJECTS + 10):
        breaches.add(f"p/{number}", "missed", 1)
    breaches.add("p/0", "missed", 1)
    told = {row["subject"]: row["count"] for row in rows(breaches.body())}
    assert len(told) == SUBJECTS + 1
    assert (told[OTHERS], told["p/0"]) == (10, 2)


async def test_what_does_not_fit_is_told_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "EVERY_S", 0.01)
    sent: list[tuple[str, bytes, int]] = []
    full, refused = [True], [0]

    def publish(topic: str, body: bytes, priority: int) -> bool:
        if full[0]:
            refused[0] += 1
            return False
        sent.append((topic, body, priority))
        return True

    report = QualityReporter(Someone(), publish)
    report.incomplete("g", 2)
    await eventually(lambda: refused[0] > 1)
    report.incomplete("g", 3)
    full[0] = False
    await eventually(lambda: sent)
    ((topic, body, priority),) = sent
    assert (topic, priority) == ("quality/desk", 6)
    (row,) = rows(body)
    assert (row["subject"], row["kind"], row["count"], row["detail"]) == ("group/g", "incomplete", 5, '{"mode":2}')
    assert report._timer is None, "nothing is told while nothing happens"


async def test_what_is_left_is_told_at_the_end_and_nothing_after_it() -> None:
    sent: list[bytes] = []
    report = QualityReporter(Someone(), lambda topic, body, priority: sent.append(body) or True)
    report.close()
    assert sent == []
    report.incomplete("g", 1)
    report.close()
    assert len(sent) == 1
    report.incomplete("g", 1)
    report.end()
