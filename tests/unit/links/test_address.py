from __future__ import annotations

import pytest

from chappe.errors import ConfigError
from chappe.links.address import Address, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:7400", Address("tcp", "127.0.0.1", 7400)),
        ("tls://node-3.grid.example:0", Address("tls", "node-3.grid.example", 0)),
        ("udp://[fe80::1]:65535", Address("udp", "fe80::1", 65535)),
        ("unix:///run/chappe.sock", Address("unix", path="/run/chappe.sock")),
        ("ws://host:8080/mesh/a", Address("ws", "host", 8080, "/mesh/a")),
        ("wss://[::1]:443/chappe", Address("wss", "::1", 443, "/chappe")),
        ("tls://host:7400?parallel=4", Address("tls", "host", 7400, options=(("parallel", "4"),))),
        (
            "udp+multicast://239.1.2.3:7500?interface=127.0.0.1&ttl=0",
            Address("udp+multicast", "239.1.2.3", 7500, options=(("interface", "127.0.0.1"), ("ttl", "0"))),
        ),
    ],
)
def test_a_url_and_its_address_are_the_same_thing(text: str, address: Address) -> None:
    assert parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("127.0.0.1:7400", "no scheme"),
        ("http://127.0.0.1:7400", "scheme 'http' is unknown"),
        ("tcp://127.0.0.1", "no port"),
        ("tcp://:7400", "'' is not a host name"),
        ("tcp://a b:7400", "'a b' is not a host name"),
        ("tcp://host/x:1", "is not a host name"),
        ("tcp://::1:7400", "in brackets"),
        ("tcp://[::1:7400", "not closed"),
        ("tcp://[::g]:7400", "not an IPv6 address"),
        ("tcp://[::1]7400", "no port"),
        ("tcp://host:65536", "port '65536'"),
        ("tcp://host:-1", "port '-1'"),
        ("tcp://host:٣", "port '٣'"),
        ("unix://run/chappe.sock", "absolute path"),
        ("unix:///" + "x" * 107, "takes 107"),
        ("unix:///a\0b", "zero byte"),
        ("ws://host:8080/a b", "not a path of a URL"),
        ("ws:///path", "is not a host name"),
        ("tcp://host:1?parallel=1", "not a number from 2 to 64"),
        ("tcp://host:1?parallel=4&parallel=4", "given twice"),
        ("tcp://host:1?fast=1", "has no option 'fast' (it has: parallel)"),
        ("udp://host:1?parallel=2", "has no option 'parallel' (it has: none)"),
        ("udp+multicast://10.1.2.3:1", "not an IPv4 multicast address"),
        ("udp+multicast://239.1.2.3:1?interface=eth0", "not the IP address of an interface"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert reason in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_place_can_allow_some_schemes_only() -> None:
    with pytest.raises(ConfigError, match="udp can not be used here; use tcp or tls"):
        parse("udp://127.0.0.1:1", ("tcp", "tls"))


@pytest.mark.parametrize(
    "text", ["tcp://127.8.8.8:1", "tcp://[::1]:1", "tcp://localhost:1", "unix:///x", "tcp://[::ffff:127.0.0.1]:1"]
)
def test_loopback(text: str) -> None:
    assert parse(text).is_loopback


@pytest.mark.parametrize(
    "text",
    ["tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1", "tcp://localhost.example:1", "tcp://[::ffff:10.0.0.1]:1"],
)
def test_not_loopback(text: str) -> None:
    assert not parse(text).is_loopback


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ws://host", "ws://host:80/chappe"),
        ("wss://host/", "wss://host:443/chappe"),
        ("wss://[::1]/x", "wss://[::1]:443/x"),
        ("ws://host:1/", "ws://host:1/chappe"),
    ],
)
def test_web_addresses_have_defaults(text: str, whole: str) -> None:
    assert str(parse(text)) == whole
