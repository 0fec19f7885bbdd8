"""Pages of a node, and what they say when its loop hangs."""

from __future__ import annotations

import urllib.error
import urllib.request

from chappe.node.metrics import PortSample, Snapshot, render
from chappe.node.web import Web


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def hangs() -> tuple[int, str]:
    raise TimeoutError


def test_a_loop_that_does_not_answer_is_not_healthy() -> None:
    web = Web("127.0.0.1:0", lambda: b"x 1\n", hangs, lambda: (503, "not listening"))
    try:
        place = f"http://127.0.0.1:{web.port}"
        assert get(f"{place}/metrics") == (200, "x 1\n")
        assert get(f"{place}/health") == (503, "the loop does not answer\n")
        assert get(f"{place}/ready") == (503, "not listening\n")
        assert get(f"{place}/")[0] == 404
    finally:
        web.close()


def test_counters_become_series_with_role_link_and_reason() -> None:
    sample = PortSample("node", "east", connected=1, queued_bytes=7, kernel_drops=2, silent_s=0.25)
    sample.add({"status_in": 3, "events_out": 4, "drop_queue_full": 5, "filtered": 6})
    sample.add({"status_in": 1})
    text = render(Snapshot("n1", [sample], refused={"limit": 9})).decode()
    where = 'link="east",node="n1"'
    for line in (
        f'chappe_port_status_total{{direction="in",{where},role="node"}} 4.0',
        f'chappe_port_events_total{{direction="out",{where},role="node"}} 4.0',
        f'chappe_port_drops_total{{{where},reason="queue_full",role="node"}} 5.0',
        f'chappe_port_actions_total{{action="filtered",{where},role="node"}} 6.0',
        f'chappe_port_queued_bytes{{{where},role="node"}} 7.0',
        f'chappe_port_kernel_drops_total{{{where},role="node"}} 2.0',
        f'chappe_port_silent_seconds{{{where},role="node"}} 0.25',
        'chappe_refused_total{code="limit",node="n1"} 9.0',
    ):
        assert line in text.splitlines()
