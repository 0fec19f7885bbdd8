"""The operators' commands as processes of their own, against real brokers and routers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import chappe


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show",), "say which broker: --url URL, or --deployment FILE"),
        (("mode", "show", "--broker", "x"), "--broker x: needs --deployment FILE"),
        (("mode", "set", "16", "--url", "tcp://127.0.0.1:1"), "15"),
        (("flood", "set", "x", "--url", "tcp://127.0.0.1:1"), "'x' is no variable"),
        (("flood", "set", "x/y", "--modes", "99", "--url", "tcp://127.0.0.1:1"), "write modes from 0 to 15"),
        (("paths", "x", "--url", "tcp://127.0.0.1:1"), "'x' is no variable"),
        (("condense", "create", "a/b", "--url", "tcp://127.0.0.1:1"), "--input is required"),
        (("condense", "remove", "a/b"), "say through which edge"),
        (("condense", "remove", "a/b", "--edge", "x"), "--edge x: needs --deployment"),
        (("topology", "add", "router", "x", "-d", "GRID"), "name its leaf with --broker"),
        (("topology", "remove", "channel", "bus-1", "x", "-d", "GRID"), "router x is not in the file"),
        (("map", "-d", "GRID", "-b", "west"), "has no such broker (brokers: root, cloud-1"),
        (("condense", "remove", "a/b", "-d", "GRID"), "--edge is required"),
        (("condense", "remove", "a/b", "-d", "GRID", "-e", "x"), "has no such edge"),
        (("show", "-d", "none.toml"), "none.toml: cannot be read"),
        (("show", "-d", "MESH"), "has [nodes] and no brokers"),
    ],
)
def test_a_command_that_lacks_something_says_what(arguments: tuple[str, ...], why: str) -> None:
    examples = Path(__file__).parents[2] / "examples"
    files = {"GRID": examples / "grid118.toml", "MESH": examples / "demo" / "mesh.toml"}
    done = chappe(*(files.get(word, word) for word in arguments), code=2)
    assert why in " ".join(done.stderr.split())


def test_no_broker_at_that_address() -> None:
    for command in (("show",), ("mode", "set", 3), ("map",), ("paths", "a/b"), ("flood", "clear", "a/b")):
        chappe(*command, "--url", "tcp://127.0.0.1:1", code=3)
