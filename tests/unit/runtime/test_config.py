"""Reading a node's file: what is right, and what each wrong thing is called."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chappe.cli import _deployment as deployment
from chappe.errors import ConfigError
from chappe.runtime.config.reader import check, load, parse
from chappe.security.authority import Authority

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))
PEER = '[[peer]]\nname = "b"\n'
BROKER = '[broker]\nname = "leaf"\n'


def reason(text: str, dev: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "node.toml", dev=dev)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[node\n", "node.toml: not TOML: "),
        ("[node]\nname = 3\n", "node.toml: node.name: Expected `str`, got `int`"),
        ("[node]\ncolour = 3\n", "node.toml: node.colour: this key does not exist"),
        ("[nodes]\n", "node.toml: nodes: this key does not exist"),
        ("[node]\nleaf = 1024\n", "node.toml: node.leaf: Expected `int` <= 1023"),
        (PEER + '[[peer]]\nurl = "tcp://127.0.0.1:1"\n', "node.toml: peer[1].name: this key is required"),
        (PEER + '[[peer]]\nname = "c"\nurl = 7\n', "node.toml: peer[1].url: Expected `str | array`, got `int`"),
        (PEER + PEER, "node.toml: peer[1].name: 'b' is used twice"),
        ('[[peer]]\nname = "node"\n', "node.toml: peer[0].name: 'node' is this node itself"),
        (PEER + 'url = "udp://127.0.0.1:1"\n', "node.toml: peer[0].url: "),
        (PEER + 'url = "tcp://10.0.0.1:1"\n', "node.toml: peer[0].url: plain tcp is for loopback only; use tls://"),
        ('[[listen]]\nurl = "tls://127.0.0.1:1"\n', "node.toml: listen[0].url: tls:// needs a [tls] section"),
        ('[[listen]]\nurl = "http://x"\n', "node.toml: listen[0].url: address 'http://x': scheme 'http' is unknown"),
        (
            '[[listen]]\nurl = "tcp://127.0.0.1:9"\n' * 2,
            "node.toml: listen[1].url: tcp://127.0.0.1:9 is listened on twice",
        ),
        ('[[listen]]\nurl = "udp://127.0.0.1:0"\n' * 2, "node.toml: listen[1].url: a node has one udp:// address"),
        (
            '[[path]]\nvariables = "#"\nto = ["c"]\n' + PEER,
            "node.toml: path[0].to: there is no [[peer]] named 'c' (peers: b)",
        ),
        ('[[path]]\nvariables = "#"\nto = []\n', "node.toml: path[0].to: Expected `array` of length >= 1"),
        (PEER + '[[path]]\nvariables = "a/#/b"\nto = ["b"]\n', "node.toml: path[0].variables: "),
        (PEER + '[[path]]\nvariables = "#"\nto = ["b"]\nmodes = []\n', "node.toml: path[0].modes: is empty"),
        (
            PEER + '[[path]]\nvariables = "#"\nto = ["b"]\npriority = 7\n',
            "node.toml: path[0].priority: Expected `int` <= 6",
        ),
        ('[[topic_route]]\npattern = ""\nto = ["b"]\n' + PEER, "node.toml: topic_route[0].pattern: "),
        ('[broker]\nname = "leaf"\nurls = []\n', "node.toml: broker.urls: Expected `array` of length >= 1"),
        (BROKER + 'urls = ["udp://127.0.0.1:1"]\n', "node.toml: broker.urls[0]: "),
        (
            BROKER + 'urls = ["tcp://127.0.0.1:1", "tcp://192.0.2.1:1"]\n',
            "node.toml: broker.urls[1]: plain tcp is for loopback only; use tls://",
        ),
        (
            BROKER + 'urls = ["tcp://127.0.0.1:1"]\n[[path]]\nvariables = "#"\nto = ["b"]\n' + PEER,
            "node.toml: path: paths of this node come from the broker leaf",
        ),
        ("[limits]\ncredit = 5\n", "node.toml: limits.credit: must hold two frames"),
        ("[limits]\npayload = 9000000\ncredit = 0\n", "node.toml: limits.queue_bytes: must hold a frame"),
        ('[metrics]\naddress = "here"\n', "node.toml: metrics.address: 'here' is not host:port"),
        ('[[rule]]\naction = "publish"\npattern = "a/#/b"\n', "node.toml: rule[0]: `pattern`: "),
        ('[tls]\nca = ""\n', "node.toml: tls: `ca` is empty"),
    ],
)
def test_a_wrong_file_names_file_key_and_reason(text: str, expected: str) -> None:
    assert reason(text).startswith(expected)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    lines = reason('[[path]]\nvariables = "#"\nto = ["x"]\n[limits]\ncredit = 1\n').splitlines()
    assert [line.split(": ")[1] for line in lines] == ["path[0].to", "limits.credit"]


@pytest.mark.parametrize("url", ["tcp://0.0.0.0:1", "tcp://192.0.2.1:1", "tcp://example.org:1", "udp://0.0.0.0:1"])
def test_dev_listens_on_loopback_only(url: str) -> None:
    assert "listen[0].url: --dev has no authentication" in reason(f'[[listen]]\nurl = "{url}"\n', dev=True)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1", "unix:///tmp/x"])
def test_dev_takes_every_way_to_say_loopback(url: str) -> None:
    assert parse(f'[[listen]]\nurl = "{url}"\n', dev=True).listen[0].url == url


def test_a_leaf_comes_from_the_name_where_none_is_given() -> None:
    assert parse("[node]\nleaf = 7\n").leaf == 7
    leaves = {parse(f'[node]\nname = "n{number}"\n').leaf for number in range(20)}
    assert len(leaves) > 15


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[tls]\nca = "ca.pem"\ncert = "n.pem"\nkey = "n.key"\n[audit]\npath = "log/audit.jsonl"\n')
    config = load(file)
    assert config.tls is not None
    assert (config.tls.ca, config.tls.crl) == (str(tmp_path / "ca.pem"), "")
    with pytest.raises(ConfigError) as caught:
        check(file)
    assert str(caught.value).splitlines() == [
        f"{file}: tls.ca: {tmp_path}/ca.pem cannot be read",
        f"{file}: tls.cert: {tmp_path}/n.pem cannot be read",
        f"{file}: tls.key: {tmp_path}/n.key cannot be read",
        f"{file}: audit.path: {tmp_path}/log is no folder; create it",
    ]


def test_a_node_with_the_certificate_of_another_is_named(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki", datetime.now(UTC))
    authority.issue("west", "node", datetime.now(UTC), hosts=["127.0.0.1"])
    authority.issue("ada", "admin", datetime.now(UTC))
    file = tmp_path / "node.toml"
    for name, certificate, reason in (
        ("west", "west", ""),
        ("node", "west", "pki/west.pem is for node 'west', and node.name is 'node'; both must be the same node"),
        ("ada", "ada", "pki/ada.pem is for admin 'ada', and node.name is 'ada'; both must be the same node"),
    ):
        tls = f'[tls]\nca = "pki/ca.pem"\ncert = "pki/{certificate}.pem"\nkey = "pki/{certificate}.key"\n'
        file.write_text(f'[node]\nname = "{name}"\n{tls}')
        if not reason:
            check(file)
            continue
        with pytest.raises(ConfigError) as caught:
            check(file)
        assert str(caught.value) == f"{file}: tls.cert: {tmp_path}/{reason}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot be read: No such file"):
        load(tmp_path / "missing.toml")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_can_be_read(file: Path) -> None:
    if tomllib.loads(file.read_text()).keys() & {"broker", "nodes"}:
        assert deployment.read(file).processes
        return
    config = load(file)
    assert config.node.name == ("site-1" if file.stem == "secure" else file.stem)
