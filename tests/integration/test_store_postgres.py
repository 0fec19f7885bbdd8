from __future__ import annotations

import threading

import psycopg
import pytest

from bench.postgres import Postgres
from chappe.errors import StaleEpochError, StoreError
from chappe.store import open_store
from chappe.store.postgres_connection import without_password
from tests.support.postgres import administer
from tests.support.stores import Open, StoreContract


class TestPostgres(StoreContract):
    @pytest.fixture
    def place(self, place: str) -> str:
        return place

    def test_an_open_transaction_of_the_old_epoch_is_not_possible(self, open: Open, place: str) -> None:
        """Whoever takes the lease waits for a commit under way; a commit that comes after it sees the new epoch."""
        one, two = open(), open()
        assert one.acquire("cloud", "one", 0.05) == 1
        with psycopg.connect(place) as holding:
            holding.execute("SELECT 1 FROM chappe_lease WHERE role = 'cloud' FOR SHARE")
            taken: list[int | None] = []

            def take() -> None:
                while not taken or taken[-1] is None:
                    taken.append(two.acquire("cloud", "two", 30))

            taking = threading.Thread(target=take)
            taking.start()
            taking.join(0.3)  # nothing to wait for: nothing is to happen
            assert taking.is_alive()
            one.commit("cloud", 1, [("k", "a", b"in time")])
            holding.rollback()
            taking.join(30)
        assert taken[-1] == 2
        with pytest.raises(StaleEpochError):
            one.commit("cloud", 1, [("k", "a", b"late")])
        assert two.load("cloud") == [("k", "a", b"in time")]


def test_processes_that_start_at_once_make_the_tables_once(place: str) -> None:
    failed: list[Exception] = []

    def start() -> None:
        try:
            open_store(place).close()
        except StoreError as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with psycopg.connect(place) as connection:
        assert connection.execute("SELECT * FROM chappe_store").fetchall() == [(1,)]


def test_a_broken_connection_is_made_anew(place: str) -> None:
    store = open_store(place)
    assert store.acquire("cloud", "one", 30) == 1
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'chappe'")
    store.commit("cloud", 1, [("k", "a", b"1")])
    assert store.load("cloud") == [("k", "a", b"1")]
    store.close()


def test_a_server_that_is_away_is_an_error_and_then_works_again(server: Postgres, place: str) -> None:
    store = open_store(place)
    assert store.acquire("cloud", "one", 30) == 1
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"refused.*is the server running") as caught:
                store.commit("cloud", 1, [("k", "a", b"1")])
            assert "\n" not in str(caught.value)
        with pytest.raises(StoreError, match="is the server running, and is its address right"):
            open_store(place)
    finally:
        server.start()
    store.commit("cloud", 1, [("k", "a", b"1")])
    assert store.load("cloud") == [("k", "a", b"1")]
    store.close()


def test_bad_urls_and_rights_are_named_in_a_line(server: Postgres, place: str) -> None:
    administer(server, "CREATE USER guest PASSWORD 'secret'")
    name = place.rpartition("/")[2]
    guest = f"postgresql://guest:secret@127.0.0.1:{server.port}/{name}"
    newer = server.url_of("newer")
    administer(server, "CREATE DATABASE newer")
    open_store(newer).close()
    with psycopg.connect(newer, autocommit=True) as connection:
        connection.execute("UPDATE chappe_store SET version = 7")
    for url, reason in (
        (server.url_of("nowhere"), 'database "nowhere" does not exist; create it with createdb'),
        (guest, "permission denied for schema public.*GRANT USAGE, CREATE ON SCHEMA"),
        ("postgresql://127.0.0.1:0x/db", "is its address right"),
        ("postgresql://h/db?nothing=1", "invalid URI query parameter"),
        (newer, "has format 7, this program uses 1"),
    ):
        with pytest.raises(StoreError, match=reason) as caught:
            open_store(url)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_user_who_may_use_the_tables_needs_no_right_to_make_them(server: Postgres, place: str) -> None:
    open_store(place).close()
    administer(server, "CREATE USER limited")
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("GRANT ALL ON chappe_store, chappe_lease, chappe_item TO limited")
    store = open_store(place.replace("chappe@", "limited@"))
    assert store.acquire("cloud", "one", 30) == 1
    store.commit("cloud", 1, [("k", "a", b"1")])
    store.close()


def test_commits_are_on_disk_where_the_server_would_not_wait(place: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        name = place.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = open_store(place)
    assert store._database.connected().execute("SHOW synchronous_commit").fetchone() == ("on",)  # type: ignore[attr-defined]
    store.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=…&x=1"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
