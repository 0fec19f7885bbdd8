"""Which proxy is used, and the tunnel through it, without a socket."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError, LinkError, RefusedError
from chappe.links.address import parse
from chappe.links.proxy import Proxy, parse_proxy, proxy_for
from chappe.links.tunnel import Again, Failed, Opened, Tunnel

FAR = parse("wss://far.example.org:443")


def test_a_url_names_a_proxy_and_its_password_is_never_shown() -> None:
    proxy = parse_proxy("http://ada:l%3Aove%20lace@proxy.example.org:3128")
    assert proxy == Proxy("proxy.example.org", 3128, "ada", "l:ove lace")
    assert "lace" not in f"{proxy} {proxy!r}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://u:secret@host:1", "use an http:// proxy"),
        ("http://u:secret@host", "missing"),
        ("http://u:secret@:3128", "missing"),
        ("http://u:secret@host:99999", "wrong"),
        ("http://u:secret@host:1/path", "nothing may follow"),
        ("http://u%0a:secret@host:1", "can not be printed"),
        ("u:secret@host:1", "http://"),
    ],
)
def test_a_wrong_proxy_says_why_and_keeps_the_secret(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_proxy(text)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("exceptions", "used"),
    [
        ("", True),
        ("*", False),
        ("example.org", False),
        (".example.org", False),
        ("ample.org", True),
        ("far.example.org:443", False),
        ("far.example.org:80", True),
        ("other.org, FAR.example.ORG", False),
    ],
)
def test_the_environment_counts_only_when_asked(exceptions: str, used: bool) -> None:
    environ = {"https_proxy": "http://p:3128", "no_proxy": exceptions}
    assert proxy_for("", FAR, environ) is None
    assert (proxy_for("environment", FAR, environ) is not None) == used
    assert proxy_for("http://q:1", FAR, environ) == Proxy("q", 1)
    assert proxy_for("environment", FAR, {}) is None
    assert proxy_for("environment", parse("unix:///x"), {"https_proxy": "http://p:3128"}) is None


def test_networks_are_excepted_by_their_prefix() -> None:
    environ = {"HTTPS_PROXY": "p:3128", "NO_PROXY": "10.0.0.0/8, ::1"}
    assert proxy_for("environment", parse("tls://10.9.8.7:1"), environ) is None
    assert proxy_for("environment", parse("tls://[::1]:1"), environ) is None
    assert proxy_for("environment", parse("tls://11.9.8.7:1"), environ) == Proxy("p", 3128)


def tunnel(user: str = "") -> Tunnel:
    made = Tunnel(Proxy("p", 3128, user, "pw"), FAR, lambda: "cnonce")
    assert made.request().startswith(b"CONNECT far.example.org:443 HTTP/1.1\r\n")
    return made


def test_bytes_behind_the_answer_belong_to_the_tunnel() -> None:
    made = tunnel()
    assert made.receive(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2") is None
    assert made.receive(b"00 fine\r\n\r") is None
    assert made.receive(b"\nhello") == Opened(b"hello")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 ok\r\nx: " + b"y" * 20_000, "does not speak HTTP"),
        (b"", "without an answer"),
    ],
)
def test_a_proxy_that_gives_no_way_is_named_with_its_reason(said: bytes, reason: str) -> None:
    outcome = tunnel().receive(said)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, LinkError)
    assert reason in str(outcome.error)
    assert "http://p:3128" in str(outcome.error)


@pytest.mark.spec("MR-032")
def test_credentials_are_given_when_asked_and_refused_ones_are_not_repeated() -> None:
    made = tunnel("ada")
    challenge = b'HTTP/1.1 407 no\r\nProxy-Authenticate: Basic realm="x"\r\nContent-Length: 5\r\n\r\n'
    assert made.receive(challenge) == Again()
    assert b"Proxy-Authorization: Basic YWRhOnB3\r\n" in made.request()
    outcome = made.receive(challenge)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RefusedError)
    assert "refuses user 'ada'" in str(outcome.error)


def test_a_proxy_that_never_stops_asking_is_given_up() -> None:
    made = tunnel("ada")
    challenge = b'HTTP/1.1 407 no\r\nProxy-Authenticate: Digest realm="x", nonce="%d", qop="auth", stale=true\r\n\r\n'
    attempts = 0
    while made.receive(challenge % attempts) == Again():
        made.request()
        attempts += 1
    assert attempts == 2


def test_what_a_proxy_wants_and_we_do_not_have_is_said() -> None:
    nobody = tunnel().receive(b"HTTP/1.1 407 no\r\nProxy-Authenticate: Basic\r\n\r\n")
    assert isinstance(nobody, Failed)
    assert "write user and password" in str(nobody.error)
    strange = tunnel("ada").receive(b"HTTP/1.1 407 no\r\nProxy-Authenticate: NTLM\r\n\r\n")
    assert isinstance(strange, Failed)
    assert "takes Ntlm; Chappe knows Basic and Digest" in str(strange.error)
