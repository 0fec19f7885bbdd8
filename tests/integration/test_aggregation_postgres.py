"""Tables of measurements in a real PostgreSQL: the same contract, partitions by day, two aggregators on one store."""

from __future__ import annotations

import threading

import psycopg
import pytest

from bench.postgres import Postgres
from chappe.errors import StoreError
from chappe.store.opening import open_records
from tests.support.postgres import administer
from tests.support.records import DAY, NOW, links, record, rows
from tests.support.recordstores import RecordStoreContract


class TestPostgres(RecordStoreContract):
    @pytest.fixture
    def place(self, place: str) -> str:
        return place


def partitions(place: str) -> list[str]:
    with psycopg.connect(place) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'perf_record_%' ORDER BY 1")
        return [name for (name,) in found]


@pytest.mark.spec("MR-127")
def test_each_day_is_a_partition_that_is_dropped_as_a_whole(place: str) -> None:
    store = open_records(place)
    try:
        store.write(rows([record(stamp_ns=NOW + day * DAY) for day in range(3)]))
        assert partitions(place) == ["perf_record_20260101", "perf_record_20260102", "perf_record_20260103"]
        store.prune(NOW + 3 * DAY, DAY, 100)
        assert partitions(place) == ["perf_record_20260103"]
        store.write(rows([record(stamp_ns=NOW + 1)]))
        assert "perf_record_20260101" in partitions(place)
    finally:
        store.close()


@pytest.mark.spec("MR-082", "MR-127")
def test_two_aggregators_write_one_store_at_the_same_time(place: str) -> None:
    """Each also makes the tables and the days: nobody waits for the other for ever, and nothing is there twice."""
    problems: list[BaseException] = []

    def write(number: int) -> None:
        try:
            store = open_records(place)
            for day in range(5):
                store.write(rows(links(50, stamp_ns=NOW + day * DAY)))
            store.close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    store = open_records(place)
    assert store.count() == 250
    store.close()


def test_a_lost_connection_is_made_anew(place: str, server: Postgres) -> None:
    store = open_records(place)
    try:
        store.write(rows(links(3)))
        administer(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'd%'")
        assert store.count() == 3
        administer(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'd%'")
        assert store.write(rows([record(stamp_ns=NOW + 5)])) == 1
    finally:
        store.close()


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"127\.0\.0\.1.*is the server running") as caught:
        open_records("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
