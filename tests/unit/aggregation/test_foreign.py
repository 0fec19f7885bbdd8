from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chappe.aggregation.foreign import prometheus, pscheduler
from chappe.aggregation.foreign.mapping import ForeignLink, ForeignMetric
from chappe.errors import ConfigError
from chappe.measure import cost
from chappe.measure.advice import OLD_NS, mix_advice
from chappe.measure.cost import Metrics
from chappe.measure.messages import Advice
from chappe.measure.record import problem
from tests.support.records import LINK, NOW, SECOND, links, record

LINKS = (
    ForeignLink(node="n1", peer="n2", uri="tcp://host:9000", source="ps1.example.org", target="ps2.example.org"),
    ForeignLink(node="n3", uri="tcp://other:9000", labels={"instance": "10.0.0.3", "job": "blackbox"}),
)
LATENCY = {
    "schema": 1, "succeeded": True, "packets-sent": 100, "packets-received": 98, "packets-lost": 2,
    "packets-duplicated": 0, "packets-reordered": 0, "max-clock-error": 0.3,
    "histogram-latency": {"10.00": 49, "12.00": 49}, "histogram-ttl": {"251": 98},
}  # fmt: skip
RTT = {
    "schema": 1, "succeeded": True, "sent": 5, "received": 4, "lost": 1, "loss": 0.2, "min": "PT0.0214S",
    "max": "PT0.0302S", "mean": "PT0.024S", "stddev": "PT0.002S", "roundtrips": [{"seq": 1, "rtt": "PT0.0214S"}],
}  # fmt: skip
THROUGHPUT = {
    "schema": 1, "succeeded": True, "intervals": [], "diags": "",
    "summary": {"summary": {"start": 0, "end": 10.0, "throughput-bits": 8e8, "throughput-bytes": 1e9}},
}  # fmt: skip


def run(kind: str, result: Any, **changes: Any) -> dict[str, Any]:
    spec = {"schema": 1, "source": "ps1.example.org", "dest": "ps2.example.org"}
    return {
        "href": "https://ps1.example.org/pscheduler/tasks/x/runs/y", "start-time": "2025-12-31T23:59:00.5Z",
        "test": {"type": kind, "spec": spec}, "result": result, **changes,
    }  # fmt: skip


class TestPscheduler:
    @pytest.mark.spec("MR-078")
    @pytest.mark.parametrize(
        ("kind", "result", "wanted"),
        [
            ("latency", LATENCY, {"latency_ms": 11.0, "deviation_ms": 1.0, "loss": 0.02, "window": 98}),
            ("latencybg", LATENCY, {"latency_ms": 11.0, "loss": 0.02}),
            ("rtt", RTT, {"latency_ms": 12.0, "deviation_ms": 1.0, "loss": 0.2, "window": 5}),
            ("throughput", THROUGHPUT, {"bandwidth": 1e8, "loss": None}),
        ],
    )
    def test_results_are_records(self, kind: str, result: Any, wanted: dict[str, Any]) -> None:
        ((found,), refused) = pscheduler.read(json.dumps(run(kind, result)).encode(), LINKS)
        assert refused == []
        assert problem(found, NOW) == ""
        assert (found.link, found.node, found.peer, found.origin) == (LINK, "n1", "n2", "foreign:pscheduler")
        assert found.stamp_ns == NOW - 60 * SECOND + SECOND // 2
        assert {name: getattr(found, name) for name in wanted} == pytest.approx(wanted)

    def test_the_width_of_buckets_counts(self) -> None:
        told = run("latency", LATENCY)
        told["test"]["spec"]["bucket-width"] = 0.0001
        ((found,), _) = pscheduler.read(json.dumps(told).encode(), LINKS)
        assert found.latency_ms == pytest.approx(1.1)

    def test_lists_and_lines_are_read(self) -> None:
        both = [run("rtt", RTT), run("throughput", THROUGHPUT)]
        assert len(pscheduler.read(json.dumps(both).encode(), LINKS)[0]) == 2
        lines = b"\n".join(json.dumps(each).encode() for each in both) + b"\n{\n"
        taken, refused = pscheduler.read(lines, LINKS)
        assert len(taken) == 2
        assert refused[0].line == 3

    @pytest.mark.parametrize(
        ("told", "reason"),
        [
            (run("rtt", {"succeeded": False, "error": "no route"}), "the rtt test did not succeed: no route"),
            (run("trace", {"succeeded": True}), "type 'trace' is none of latency"),
            (run("rtt", RTT | {"mean": "fast"}), "mean: 'fast' is no duration"),
            (run("rtt", RTT, **{"start-time": "2026-01-01T00:00:00"}), "says no time zone"),
            (run("rtt", RTT, **{"start-time": "now"}), "'now' is no time"),
            (run("latency", LATENCY | {"histogram-latency": {"x": 1}}), "histogram-latency: 'x' is no number"),
            (run("latency", LATENCY | {"packets-lost": -3}), "packets-lost: -3 is negative"),
            (run("latency", {"succeeded": True}), "histogram-latency is missing"),
            (run("throughput", {"succeeded": True, "summary": {}}), "summary: is missing or no object"),
            (run("rtt", RTT, test={"type": "rtt", "spec": {"dest": "mars"}}), r"no link is configured for \? to mars"),
            (run("rtt", "result"), "result: is missing or no object"),
            (17, "test: is missing or no object"),
        ],
    )
    def test_what_is_no_result_is_refused(self, told: Any, reason: str) -> None:
        taken, refused = pscheduler.read(json.dumps(told).encode(), LINKS)
        assert taken == []
        assert re.search(reason, refused[0].reason), refused

    @given(st.binary(max_size=200))
    def test_no_bytes_break_it(self, text: bytes) -> None:
        assert pscheduler.read(text, LINKS)[0] == []

    @pytest.mark.spec("MR-080")
    def test_our_records_are_readable_for_it(self) -> None:
        told = record(node="ps1.example.org", peer="ps2.example.org", latency_ms=7.5, loss=0.25, window=16)
        ((found,), refused) = pscheduler.read(pscheduler.write([told, record()]), LINKS)
        assert refused == []
        assert (found.latency_ms, found.loss, found.stamp_ns) == (7.5, 0.25, NOW)


METRICS = (
    ForeignMetric(name="probe_icmp_duration_seconds", field="latency_ms", factor=500),
    ForeignMetric(name="probe_loss_ratio", field="loss"),
)
PAGE = """
# HELP probe_icmp_duration_seconds Round trip.
# TYPE probe_icmp_duration_seconds gauge
probe_icmp_duration_seconds{instance="10.0.0.3",job="blackbox",phase="rtt"} 0.024
probe_icmp_duration_seconds{instance="10.0.0.9",job="blackbox"} 0.5
probe_loss_ratio{instance="10.0.0.3",job="blackbox"} 0.1 1767225000000
unrelated_total 17
"""


class TestPrometheus:
    @pytest.mark.spec("MR-078")
    def test_metrics_are_records_by_the_table(self) -> None:
        ((found,), refused) = prometheus.read(PAGE, LINKS, METRICS, NOW)
        assert refused == []
        assert (found.node, found.uri, found.origin) == ("n3", "tcp://other:9000", "foreign:prometheus")
        assert (found.latency_ms, found.loss, found.stamp_ns) == (12.0, 0.1, NOW)
        assert problem(found, NOW) == ""

    def test_the_time_of_a_sample_counts(self) -> None:
        ((found,), _) = prometheus.read(PAGE, LINKS, METRICS[1:], NOW)
        assert found.stamp_ns == 1_767_225_000 * SECOND

    @pytest.mark.parametrize("text", ["{{{", 'a{b="c} 1', "probe_loss_ratio{instance=} x", "\x00"])
    def test_what_is_not_the_form_is_refused(self, text: str) -> None:
        taken, refused = prometheus.read(text, LINKS, METRICS, NOW)
        assert taken == []
        assert all("is not the text form" in each.reason for each in refused)

    @pytest.mark.spec("MR-080")
    def test_our_records_are_metrics(self) -> None:
        (told,) = links(1)
        families = {family.name: family for family in text_string_to_metric_families(prometheus.write([told]).decode())}
        (sample,) = families["chappe_link_latency_seconds"].samples
        assert sample.value == pytest.approx((told.latency_ms or 0) / 1000)
        assert sample.labels["link"] == told.link
        assert families["chappe_link_bandwidth_bytes"].samples == []


def test_a_table_without_a_link_is_refused() -> None:
    with pytest.raises(ConfigError, match="give uri or link"):
        ForeignLink(node="n").uuid()
    with pytest.raises(ConfigError, match="'x' is no UUID"):
        ForeignLink(node="n", link="x").uuid()
    assert ForeignLink(node="n", link=LINK.upper()).uuid() == LINK


class TestAdvice:
    ADVICE = Advice(link=LINK, source="foreign:x", stamp_ns=NOW, weight=0.25, latency_ms=40.0, loss=0.2)

    @pytest.mark.spec("MR-079")
    def test_others_count_by_weight_beside_ours_and_alone_where_we_have_none(self) -> None:
        both = mix_advice(Metrics(latency_ms=20.0, jitter=0.1), self.ADVICE, NOW)
        assert both is not None
        assert (both.latency_ms, both.loss, both.jitter) == (25.0, 0.2, 0.1)
        alone = mix_advice(None, self.ADVICE, NOW)
        assert alone is not None
        assert alone.latency_ms == 40.0
        assert cost.of(alone, "default") == pytest.approx(40 + 100 * 0.2)
        assert mix_advice(None, Advice(link=LINK, source="x", stamp_ns=NOW, weight=0.5, loss=0.1), NOW) is None

    def test_old_or_senseless_advice_changes_nothing(self) -> None:
        own = Metrics(latency_ms=20.0)
        assert mix_advice(own, self.ADVICE, NOW + OLD_NS + 1) is own
        for wrong in (-5.0, math.nan, math.inf):
            advice = Advice(link=LINK, source="x", stamp_ns=NOW, weight=0.5, latency_ms=wrong)
            found = mix_advice(own, advice, NOW)
            assert found is not None
            assert found.latency_ms == 20.0
