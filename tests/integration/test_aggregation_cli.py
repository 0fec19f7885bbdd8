"""`chappe aggregate`: what is stored, as people and scripts ask for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chappe.aggregation import xml
from chappe.measure import record as codec
from chappe.store.opening import open_records
from tests.support.commands import chappe
from tests.support.commands import rows as parsed
from tests.support.records import HOUR, SECOND, record, rows

CONFIG = """
[aggregates]
name = "agg"
realm = "east"
store = "east.db"
[[view]]
group = "partners"
metrics = ["latency_ms"]
[[foreign]]
kind = "pscheduler"
place = "runs.json"
[[foreign.link]]
node = "n1"
uri = "tcp://x:1"
source = "a"
target = "b"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three links, measured for six hours."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "agg.toml").write_text(CONFIG)
    store = open_records(folder / "east.db")
    begin = time.time_ns() - 6 * HOUR
    told = [
        record(
            node="a", peer=peer, uri=f"tcp://{peer}:1", stamp_ns=begin + minute * 60 * SECOND, transport="tcp",
            latency_ms=latency + minute % 2, loss=0.0, cost=latency, user_group=group, published=minute % 5 == 0,
        )
        for peer, latency, group in (("b", 10.0, ""), ("c", 12.0, ""), ("d", 90.0, "A"))
        for minute in range(360)
    ]  # fmt: skip
    store.write(rows(told))
    store.close()
    return folder


def ask(folder: Path, *arguments: object, code: int = 0, store: bool = True) -> str:
    place = ("--store", folder / "east.db") if store else ()
    return chappe("aggregate", *arguments, *place, code=code).stdout


def test_tables_for_people_and_json_for_scripts(folder: Path) -> None:
    text = ask(folder, "links")
    assert "tcp://b:1" in text
    assert "latency_ms" in text
    (slow,) = parsed(ask(folder, "links", "--where", "latency_ms > 50 and loss < 0.1", "--json"))
    assert slow["peer"] == "d"
    hourly = parsed(ask(folder, "averages", "--per", "hour", "--by", "uri", "--json"))
    assert len(hourly) in range(18, 22)
    assert {row["uri"] for row in hourly} == {"tcp://b:1", "tcp://c:1", "tcp://d:1"}
    (tcp,) = parsed(ask(folder, "averages", "--by", "transport", "--json"))
    assert tcp["records"] == 1080
    assert len(parsed(ask(folder, "history", "tcp://b:1", "--last", "30m", "--json"))) in (29, 30)
    assert parsed(ask(folder, "hours", "a-d", "--json"))
    (worst,) = parsed(ask(folder, "bottlenecks", "--json"))
    assert (worst["peer"], worst["advice"]) == ("d", "add a link")
    assert len(parsed(ask(folder, "important", "--number", "1", "--per", "6h", "--json"))) in (1, 2)


@pytest.mark.spec("MR-128")
def test_history_says_what_comes_next(folder: Path) -> None:
    done = chappe("aggregate", "history", "tcp://b:1", "--store", folder / "east.db")
    assert "next latency: 1" in done.stderr
    assert "off by" in done.stderr


@pytest.mark.spec("MR-091")
def test_sql_reads_and_only_reads(folder: Path) -> None:
    (row,) = parsed(ask(folder, "sql", "select count(*) as n from perf_record", "--json"))
    assert row == {"n": 1080}
    done = chappe("aggregate", "sql", "delete from perf_record", "--store", folder / "east.db", code=1)
    assert "only reading is allowed here" in done.stderr


@pytest.mark.spec("MR-105")
def test_a_group_sees_its_view(folder: Path) -> None:
    seen = parsed(ask(folder, "links", "--file", folder / "agg.toml", "--group", "partners", "--json", store=False))
    assert [row["peer"] for row in seen] == ["b", "c"]
    assert all("cost" not in row and row["latency_ms"] for row in seen)
    done = chappe("aggregate", "links", "--group", "partners", "--store", folder / "east.db", code=2)
    assert "--group needs --file" in done.stderr


@pytest.mark.spec("MR-080", "MR-092", "MR-103")
def test_everything_leaves_and_comes_as_xml(folder: Path, tmp_path: Path) -> None:
    document = tmp_path / "all.xml"
    ask(folder, "export", "--last", "1d", "--out", document)
    tree = xml.parse(document.read_bytes())
    assert xml.violations(tree) == []
    assert len(tree.getroot()) == 1080
    copy = ("--store", tmp_path / "copy.db")
    assert chappe("aggregate", "import", document, *copy).stdout == "1080 new, 0 known already, 0 refused\n"
    assert chappe("aggregate", "import", document, *copy).stdout == "0 new, 1080 known already, 0 refused\n"
    mean = float(ask(folder, "xpath", "sum(//avg_latency) div count(//avg_latency)", "--last", "1d"))
    assert mean == pytest.approx(37.83, abs=0.1)
    (slow,) = ask(folder, "xpath", "//performancedata[avg_latency > 50]").splitlines()
    assert "<link_ID>tcp://d:1</link_ID>" in slow
    assert "<table>" in ask(folder, "export", "--form", "html")
    assert "chappe_link_latency_seconds{" in ask(folder, "export", "--form", "prometheus")
    lines = ask(folder, "export", "--form", "jsonl").encode()
    assert len(codec.decode(lines, time.time_ns())[0]) == 3
    assert len(ask(folder, "export", "--form", "pscheduler").splitlines()) == 3


@pytest.mark.spec("MR-078")
def test_foreign_results_come_in(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(
        '{"start-time": "2026-01-01T00:00:00Z", "test": {"type": "rtt", "spec": {"source": "a", "dest": "b"}},'
        ' "result": {"succeeded": true, "mean": "PT0.02S", "sent": 5, "lost": 0}}\n{"test": 3}\n'
    )
    place = ("--store", tmp_path / "east.db", "--file", folder / "agg.toml")
    done = chappe("aggregate", "import", runs, "--form", "pscheduler", *place, code=1)
    assert done.stdout == "1 new, 0 known already, 1 refused\n"
    assert "line 2: test: is missing or no object" in done.stderr
    (row,) = parsed(chappe("aggregate", "links", "--json", "--store", tmp_path / "east.db").stdout)
    assert (row["latency_ms"], row["origin"]) == (10.0, "foreign:pscheduler")


@pytest.mark.parametrize(
    ("arguments", "reason", "code"),
    [
        (("links",), "no store: give --store or --file", 2),
        (("links", "--store", "nowhere.db"), "there is no store nowhere.db; start the aggregator first", 2),
        (("averages", "--per", "fortnight"), "'fortnight' is no duration; write 90s", 2),
        (("averages", "--by", "colour"), "averages by 'colour': give one of link", 2),
        (("history", "tcp://nobody"), "no link 'tcp://nobody' is stored", 2),
        (("links", "--where", "speed > 3"), "'speed' is no metric", 2),
        (("xpath", "//["), "XPath '//['", 1),
        (("import", "agg.toml"), "is not well-formed UTF-8 XML", 1),
    ],
)
def test_errors_say_what_to_do(folder: Path, arguments: tuple[str, ...], reason: str, code: int) -> None:
    given = [folder / word if word == "agg.toml" else word for word in arguments]
    if arguments[:1] != ("links",) or "--where" in arguments:
        given += ["--store", folder / "east.db"]
    done = chappe("aggregate", *given, code=code)
    assert reason in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><P_Metrics>&b;</P_Metrics>',
            "line 1: <!DOCTYPE is not allowed",
        ),
        (b'<P_Metrics><performancedata x="&undefined;"/></P_Metrics>', "is not well-formed UTF-8 XML"),
        (b"<P_Metrics><performancedata>", "is not well-formed UTF-8 XML"),
        (b"<other/>", "the root is other; it must be P_Metrics or performancedata"),
    ],
)
def test_a_hostile_document_is_refused_and_nothing_is_stored(
    folder: Path, tmp_path: Path, document: bytes, reason: str
) -> None:
    path = tmp_path / "hostile.xml"
    path.write_bytes(document)
    place = ("--store", tmp_path / "copy.db")
    done = chappe("aggregate", "import", path, *place, code=1)
    assert reason in " ".join(done.stderr.split())
    store = open_records(tmp_path / "copy.db")
    try:
        assert store.count() == 0
    finally:
        store.close()
