from __future__ import annotations

import socket
from itertools import pairwise

import pytest

from chappe.errors import LinkError
from chappe.links import ports
from chappe.links.ports import free_ports


@pytest.fixture(autouse=True)
def no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tests run side by side each process has a range."""
    monkeypatch.delenv(ports.RANGE, raising=False)


def test_ports_are_neighbours_below_those_of_outgoing_connections_and_none_is_given_twice() -> None:
    given = [free_ports(count) for count in (1, 3, 2, 1)]
    every = [port for each in given for port in each]
    assert [len(each) for each in given] == [1, 3, 2, 1]
    assert all(after == before + 1 for each in given for before, after in pairwise(each))
    assert len(set(every)) == len(every)
    assert all(ports.FIRST <= port < ports.LAST < 32_768 for port in every)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_passed_over(kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, taken, *_) = free_ports(8)
    with socket.socket(type=kind) as sock:
        sock.bind(("127.0.0.1", taken))
        monkeypatch.setattr(ports, "_starts", iter(range(first - ports.FIRST, first - ports.FIRST + 100)))
        found = free_ports(2)
        assert taken not in found
        assert found[0] > taken


def test_a_range_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ports.RANGE, "31000-31040")
    given = {port for _ in range(15) for port in free_ports(2)}
    assert given <= set(range(31_000, 31_040))


def test_where_none_is_left_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda host, port: False)
    with pytest.raises(LinkError, match=r"no 2 neighbouring free ports between 20000 and 32000 on 127\.0\.0\.1"):
        free_ports(2)
