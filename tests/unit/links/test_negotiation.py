"""Which of the links that both ends have is best, and why."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError, ProtocolError
from chappe.links.negotiation import Abilities, Capabilities, choose, read, read_page

FAR = read(
    "east",
    [
        "tcp://127.0.0.1:1",
        "unix:///run/x",
        "ws://10.0.0.9:80",
        "wss://10.0.0.9:443",
        "tls://10.0.0.9:2",
        "udp://10.0.0.9:2",
    ],
)
NEAR = read(
    "east", ["wss://127.0.0.1:4", "tls://127.0.0.1:3", "tcp://127.0.0.1:1", "unix:///run/x", "udp://127.0.0.1:1"]
)


def kinds(mine: Abilities, theirs: Capabilities, data: str) -> list[str]:
    return [choice.kind for choice in choose(mine, theirs, data)]


@pytest.mark.spec("MR-044")
@pytest.mark.parametrize(
    ("mine", "theirs", "data", "expected"),
    [
        (Abilities(certificates=True), FAR, "control", ["tls", "wss"]),
        (Abilities(certificates=True), FAR, "status", ["udp", "tls", "wss"]),
        (Abilities(certificates=True, proxied=True), FAR, "status", ["tls", "wss"]),
        (Abilities(), FAR, "control", []),
        (Abilities(same_machine=True), NEAR, "control", ["unix", "tcp"]),
        (Abilities(same_machine=True, certificates=True), NEAR, "bulk", ["unix", "tcp", "tls", "wss"]),
        (Abilities(same_machine=True, kinds=frozenset({"tcp", "udp"})), NEAR, "status", ["udp", "tcp"]),
    ],
)
def test_the_best_link_that_both_have_comes_first(
    mine: Abilities, theirs: Capabilities, data: str, expected: list[str]
) -> None:
    assert kinds(mine, theirs, data) == expected


@pytest.mark.spec("MR-120", "MR-044")
def test_an_application_may_prefer_a_transport() -> None:
    mine = Abilities(certificates=True, preferred=("wss", "tls"))
    assert kinds(mine, FAR, "status") == ["wss", "tls", "udp"]
    assert choose(mine, FAR, "status")[0].reason.startswith("preferred 1 of wss, tls, udp for status")


def test_the_reason_says_what_was_compared_and_what_was_left_out() -> None:
    [first, _] = choose(Abilities(certificates=True), FAR, "control")
    assert first.reason == (
        "ranked 1 of tls, wss for control; left out: tcp is on another machine, unix is on another machine, "
        "ws is plain and leaves the machine, udp carries no control"
    )


def test_what_is_offered_on_any_address_is_met_where_the_node_was_met() -> None:
    offered = read("n", ["tls://0.0.0.0:7400", "wss://[::]:443/x", "tls://10.0.0.1:7400"], "10.0.0.1")
    assert offered.uris() == ("tls://10.0.0.1:7400", "wss://10.0.0.1:443/x")


def test_transports_of_the_future_are_passed_over() -> None:
    offered = read("n", ["quic://10.0.0.1:1", "nonsense", "tls://10.0.0.1:2"])
    assert offered.uris() == ("tls://10.0.0.1:2",)
    assert offered.unknown == ("quic://10.0.0.1:1", "nonsense")


@pytest.mark.spec("MR-043")
def test_the_page_of_a_node_is_read_as_it_was_written() -> None:
    assert read_page(FAR.page(), "").links == FAR.links


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"node": 5, "links": []}', b'{"links": "tcp"}', b"\xff" * 100, b"[" * 5000]
)
def test_a_page_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_page(body, "h")


def test_too_many_links_are_refused() -> None:
    with pytest.raises(ProtocolError, match="65 links; 64"):
        read("n", [f"tcp://127.0.0.1:{port}" for port in range(65)])
    with pytest.raises(ProtocolError):
        read("n", ["tcp://" + "h" * 600 + ":1"])


def test_a_kind_of_data_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="one of control, status, bulk"):
        choose(Abilities(), NEAR, "video")
