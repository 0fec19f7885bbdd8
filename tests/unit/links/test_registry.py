"""The list of all links, without a socket."""

from __future__ import annotations

import uuid

import pytest

from chappe.errors import ConfigError
from chappe.links.link import Security
from chappe.links.registry import LinkEntry, Notice, Transports


def transports() -> tuple[Transports, list[Notice]]:
    ids = iter(range(1, 1000))
    made = Transports(lambda: uuid.UUID(int=next(ids)))
    notices: list[Notice] = []
    made.watch(notices.append)
    return made, notices


def opened(made: Transports, peer: str = "east", kind: str = "tcp", port: int = 1) -> LinkEntry:
    return made.opened(
        uri=f"{kind}://10.0.0.1:1", kind=kind, peer=peer, role="node", port=port, local="10.0.0.2:9",
        remote="10.0.0.1:1", security=Security(kind == "tls", "TLSv1.3"), wall_ns=5,
    )  # fmt: skip


@pytest.mark.spec("MR-046")
def test_every_link_is_listed_and_watched_from_its_beginning_to_its_end() -> None:
    made, notices = transports()
    first, second = opened(made), opened(made, kind="tls", port=2)
    assert [entry.id.int for entry in made] == [1, 2]
    assert made.of_port(2) is second
    made.moved(first, ("control",), "loss of 8 %")
    made.closed(first, "reset")
    made.closed(first, "again")
    assert [(notice.what, notice.entry.id.int, notice.reason) for notice in notices] == [
        ("opened", 1, ""),
        ("opened", 2, ""),
        ("moved", 1, "loss of 8 %"),
        ("closed", 1, "reset"),
    ]
    [row] = made.rows()
    wanted = {
        "kind": "tls",
        "peer": "east",
        "secure": True,
        "mechanism": "TLSv1.3",
        "local": "10.0.0.2:9",
        "state": "open",
    }
    assert wanted.items() <= row.items()


@pytest.mark.spec("MR-047", "MR-039")
def test_a_lifetime_ends_once_and_only_for_links_that_are_still_there() -> None:
    made, notices = transports()
    short, long, gone, prolonged = (opened(made, port=port) for port in range(4))
    made.limit(short, 100)
    made.limit(long, 300)
    made.limit(gone, 100)
    made.limit(prolonged, 100)
    made.limit(prolonged, 400)
    made.closed(gone, "lost")
    assert made.expired(99) == []
    assert made.expired(100) == [short]
    made.closed(short, "its time is over")
    assert made.expired(350) == [long]
    assert made.expired(350) == []
    assert made.expired(400) == [prolonged]
    assert [notice.entry for notice in notices if notice.what == "expired"] == [short, long, prolonged]


@pytest.mark.spec("MR-045")
def test_switches_are_set_by_kind_and_told_for_the_links_of_that_kind() -> None:
    made, notices = transports()
    tcp = opened(made)
    opened(made, kind="tls")
    made.set_monitoring("tcp", on=False)
    made.set_detection("tcp", on=True, interval_ns=100)
    assert [notice.entry for notice in notices if notice.what == "switched"] == [tcp, tcp]
    assert (made.switches("tcp").monitoring, made.switches("tcp").detection_ns) == (False, 100)
    assert made.switches("tls").monitoring
    assert made.switched("ws") is None
    with pytest.raises(ConfigError, match="no transport 'pigeon'"):
        made.set_monitoring("pigeon", on=True)
    with pytest.raises(ConfigError, match="positive"):
        made.set_detection("tcp", on=True, interval_ns=0)


@pytest.mark.spec("MR-045")
def test_each_transport_has_one_factory_that_says_what_it_is_good_for() -> None:
    made, _ = transports()
    factories = made.factories()
    assert {"tcp", "tls", "unix", "udp", "ws", "wss"} <= set(factories)
    for kind, factory in factories.items():
        assert factory.kind == kind
        assert factory.migrates_to <= set(factories)
        assert set(factory.ranks) <= {"control", "status", "bulk"}
    assert "tcp" in factories["udp"].migrates_to
    assert "control" not in factories["udp"].ranks
