from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from chappe.errors import StoreError
from chappe.store import open_store
from chappe.store.opening import open_records
from tests.support.records import rows
from tests.support.recordstores import RecordStoreContract

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from chappe.store.opening import open_records
from tests.support.records import links, rows
store = open_records(sys.argv[1])
for start in range(0, 100_000, 10):
    store.write(rows(links(10, stamp_ns=10**18 + start * 1000)))
    print(start + 10, flush=True)
"""


class TestSqlite(RecordStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "measured.db")

    def test_users_cannot_reach_other_files(self, place: str, tmp_path: Path) -> None:
        store = open_records(place)
        try:
            for statement in (f"attach '{tmp_path / 'other.db'}' as other", "pragma query_only = off", "vacuum"):
                with pytest.raises(StoreError, match="only reading is allowed here; write one SELECT"):
                    store.select(statement)
        finally:
            store.close()
        assert not (tmp_path / "other.db").exists()

    def test_an_endless_statement_is_ended(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chappe.store.records_sqlite.SELECT_S", 0.05)
        store = open_records(place)
        try:
            with pytest.raises(StoreError, match=r"took longer than 0\.05 s; ask for less"):
                store.select("with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n")
        finally:
            store.close()


def test_a_killed_writer_loses_no_committed_record(tmp_path: Path) -> None:
    path = tmp_path / "measured.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        told = 0
        for line in writer.stdout:
            told = int(line)
            if told == 500:
                writer.kill()
    store = open_records(path)
    try:
        assert told <= store.count() <= told + 10
    finally:
        store.close()


def test_what_is_no_store_of_measurements_is_refused(tmp_path: Path) -> None:
    broker = tmp_path / "broker.db"
    open_store(broker).close()
    newer = tmp_path / "newer.db"
    open_records(newer).close()
    database = sqlite3.connect(newer)
    database.execute("PRAGMA user_version = 99")
    database.close()
    text = tmp_path / "text"
    text.write_text("no database at all, " * 100)
    for path, reason in (
        (broker, "is no store of measurements; give another path"),
        (newer, "has format 99, this program uses 1"),
        (text, "is not a SQLite file"),
        (tmp_path / "none" / "a.db", "there is no folder"),
        ("http://somewhere/db", "give a path of a file or a postgresql:// url"),
        ("", "give a path of a file"),
    ):
        with pytest.raises(StoreError, match=reason):
            open_records(path)


def test_a_full_transaction_or_nothing(tmp_path: Path) -> None:
    store = open_records(tmp_path / "a.db")
    try:
        with pytest.raises(StoreError):
            store.write([("only", "three", 3)])  # type: ignore[list-item]
        assert store.count() == 0
        assert store.write(rows([])) == 0
    finally:
        store.close()
