"""Options reach real sockets, and those that are accepted from them."""

from __future__ import annotations

import socket

import pytest

from chappe.links.options import LinkOptions, apply


def congestion(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


@pytest.fixture
def sock() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def test_links_use_loss_based_congestion_control_whatever_the_system_prefers(sock: socket.socket) -> None:
    with sock:
        apply(sock, LinkOptions())
        assert congestion(sock) in ("cubic", "reno")


def test_an_algorithm_that_does_not_exist_is_replaced_by_one_that_always_does(sock: socket.socket) -> None:
    with sock:
        apply(sock, LinkOptions(congestion="no-such-thing"))
        assert congestion(sock) == "reno"


def test_the_choice_of_the_system_can_be_kept(sock: socket.socket) -> None:
    with sock:
        own = congestion(sock)
        apply(sock, LinkOptions(congestion=""))
        assert congestion(sock) == own


def test_an_accepted_connection_has_the_options_of_its_listener(sock: socket.socket) -> None:
    with sock, socket.socket() as dialled:
        apply(sock, LinkOptions(congestion="reno"))
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        dialled.connect(sock.getsockname())
        accepted, _ = sock.accept()
        with accepted:
            assert congestion(accepted) == "reno"
