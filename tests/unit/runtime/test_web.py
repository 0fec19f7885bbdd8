"""Pages of a node, and what they say when its loop hangs."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.runtime.config.reader import parse
from chappe.runtime.metrics import PortSample, Snapshot, render
from chappe.runtime.web import Web
from chappe.security.authority import Authority
from chappe.security.pages import PageAccess

SECRET = "0123456789abcdef0123"


def get(url: str, authorization: str = "", tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})
    try:
        with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def hangs() -> tuple[int, str]:
    raise TimeoutError


def test_a_loop_that_does_not_answer_is_not_healthy() -> None:
    web = Web(PageAccess(address="127.0.0.1:0"), lambda: b"x 1\n", hangs, lambda: (503, "not listening"))
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


def test_counters_that_have_another_name_now_are_there_by_both() -> None:
    sample = PortSample("node", "east")
    sample.add({"rerouted": 3, "drop_no_route": 4})
    text = render(Snapshot("n1", [sample], totals={"drop_no_route": 2, "rerouted": 1}, stale={"liar": 1})).decode()
    where = 'link="east",node="n1",role="node"'
    for line in (
        f'chappe_port_actions_total{{action="rescued",{where}}} 3.0',
        f'chappe_port_actions_total{{action="rerouted",{where}}} 3.0',
        'chappe_port_drops_total{link="east",node="n1",reason="no_route",role="node"} 4.0',
        'chappe_engine_total{counter="rescued",node="n1"} 1.0',
        'chappe_engine_total{counter="rerouted",node="n1"} 1.0',
        'chappe_engine_total{counter="drop_no_route",node="n1"} 2.0',
        'chappe_mesh_stale_total{node="n1",originator="liar",speaker="liar"} 1.0',
    ):
        assert line in text.splitlines()
    assert "no_way" not in text, "drops are added up over reasons: each is there once"


def page(access: PageAccess) -> Web:
    return Web(access, lambda: b"x 1\n", lambda: (200, "alive"), lambda: (200, "ready"), public=("/offered",))


def test_a_page_with_a_token_is_for_those_who_bring_it(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(f"{SECRET}\n")
    web = page(PageAccess(address="127.0.0.1:0", token=str(secret)))
    basic = base64.b64encode(f"prometheus:{SECRET}".encode()).decode()
    try:
        for wrong in ("", "Bearer wrong", f"Bearer {SECRET}x", "Basic !!", f"Digest {SECRET}"):
            assert get(f"{web.url}/metrics", wrong)[0] == 401
        assert get(f"{web.url}/metrics", f"Bearer {SECRET}") == (200, "x 1\n")
        assert get(f"{web.url}/metrics", f"Basic {basic}") == (200, "x 1\n")
        assert get(f"{web.url}/health") == (200, "alive\n")
        assert get(f"{web.url}/offered")[0] == 404
        secret.write_text("fedcba98765432100000")
        assert get(f"{web.url}/metrics", f"Bearer {SECRET}")[0] == 401
        secret.unlink()
        assert get(f"{web.url}/metrics", "Bearer fedcba98765432100000")[0] == 401
    finally:
        web.close()


def test_a_page_by_tls_is_for_certificates_of_its_authority(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", datetime.now(UTC))
    authority.issue("n1", "node", datetime.now(UTC), hosts=["127.0.0.1"])
    authority.issue("scraper", "client", datetime.now(UTC))
    ca = tmp_path / "ca"
    access = PageAccess(address="127.0.0.1:0", cert=f"{ca}/n1.pem", key=f"{ca}/n1.key", client_ca=f"{ca}/ca.pem")
    shows, shows_none = (ssl.create_default_context(cafile=f"{ca}/ca.pem") for _ in range(2))
    shows.load_cert_chain(f"{ca}/scraper.pem", f"{ca}/scraper.key")
    web = page(access)
    try:
        assert web.url.startswith("https://")
        assert get(f"{web.url}/metrics", tls=shows) == (200, "x 1\n")
        with pytest.raises(OSError, match=r"CERTIFICATE_REQUIRED|certificate required|reset|EOF"):
            get(f"{web.url}/metrics", tls=shows_none)
    finally:
        web.close()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "needs TLS"),
        ('token = "t"', "needs TLS"),
        ('cert = "c"\nkey = "k"', "prove who they are"),
        ('cert = "c"', "belong together"),
        ('client_ca = "c"\ninsecure = true', "shown by TLS alone"),
    ],
)
def test_a_page_off_loopback_is_not_served_to_everybody(lines: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(f'[[listen]]\nurl = "tcp://127.0.0.1:0"\n[metrics]\naddress = "0.0.0.0:9400"\n{lines}\n')


def test_a_page_off_loopback_may_be_declared_insecure() -> None:
    config = parse('[[listen]]\nurl = "tcp://127.0.0.1:0"\n[metrics]\naddress = "0.0.0.0:9400"\ninsecure = true\n')
    assert config.metrics.insecure
