from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from chappe.errors import StoreError
from chappe.store import open_store
from chappe.store.sqlite import SqliteStore
from tests.support.stores import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "broker.db")


def test_it_syncs_every_commit_to_its_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    database = store._file.database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_a_lease_of_before_a_reboot_is_over(tmp_path: Path) -> None:
    before = SqliteStore(tmp_path / "a.db", clock=lambda: 5_000.0)
    assert before.acquire("cloud", "one", 2) == 1
    before.close()
    after = SqliteStore(tmp_path / "a.db", clock=lambda: 10.0)
    assert after.acquire("cloud", "two", 2) == 2
    after.close()


def test_what_is_no_store_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database at all, " * 100)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    newer = tmp_path / "newer.db"
    SqliteStore(newer).close()
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    content = foreign.read_bytes()
    for path, reason in (
        (tmp_path, "is a folder; give the path of a file"),
        (tmp_path / "none" / "a.db", "there is no folder .*none; create it"),
        (text, "is not a SQLite file; give another path"),
        (foreign, "is a database of another program; give another path"),
        (newer, "has format 99, this program uses 1"),
        ("http://somewhere/db", "give a path of a file or a postgresql:// url"),
        ("  ", "is empty; give a path"),
    ):
        with pytest.raises(StoreError, match=reason) as caught:
            open_store(str(path))
        assert "\n" not in str(caught.value)
    assert text.read_text() == "no database at all, " * 100
    assert foreign.read_bytes() == content


def test_a_place_where_nobody_may_write_is_named() -> None:
    with pytest.raises(StoreError, match=r"store /proc/broker.db: .*change its permissions"):
        open_store("/proc/broker.db")


def test_a_file_that_another_process_holds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.store.sqlite_file.BUSY_S", 0.1)
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"another process has held it for 0\.1 s"):
        store.acquire("cloud", "one", 1)
    other.execute("ROLLBACK")
    assert store.acquire("cloud", "one", 1) == 1
    store.close()
    other.close()
