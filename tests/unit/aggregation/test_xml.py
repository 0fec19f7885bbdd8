from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from lxml.html import document_fromstring

from chappe.aggregation import xml
from chappe.aggregation.flatfile import FlatFile
from chappe.aggregation.xml import XmlError
from chappe.errors import StoreError
from chappe.measure.record import Record
from tests.support.records import NOW, SECOND, links, record
from tests.unit.measure.test_record import RECORDS

# As the source prints it, with its own spelling
SAMPLE = b"""<P_Metrics>
<performancedata>
  <Node_ID>gf1.example.org</Node_ID>
  <link_ID>niotcp://gf1.example.org:9000</link_ID>
  <user_group>A</user_group>
  <avg_latency>2.5</avg_latency>
  <Std_dev>1.2</Std_dev>
  <jitter>0.4</jitter>
  <lossrate>0.0</lossrate>
  <date>12/31/2025</date>
  <time>11:59pm</time>
</performancedata>
</P_Metrics>"""


@pytest.mark.spec("MR-076")
@settings(max_examples=50)
@given(st.lists(RECORDS, max_size=4))
def test_nothing_of_a_record_is_lost_in_xml(records: list[Record]) -> None:
    document = xml.export(records)
    assert xml.read(document, NOW) == (records, [])


@pytest.mark.spec("MR-076")
def test_the_elements_are_spelled_as_in_the_sample() -> None:
    tree = xml.parse(xml.export([record(user_group="A", latency_ms=2.5, deviation_ms=1.2, jitter_ms=0.4, loss=0.0)]))
    row = tree.getroot()[0]
    names = ["Node_ID", "link_ID", "user_group", "avg_latency", "Std_dev", "jitter", "lossrate", "date", "time"]
    assert (tree.getroot().tag, row.tag, [child.tag for child in row]) == ("P_Metrics", "performancedata", names)
    assert [child.text for child in row][-2:] == ["01/01/2026", "12:00am"]
    assert row.get("stamp") == "2026-01-01T00:00:00Z"
    assert xml.violations(tree) == []


@pytest.mark.spec("MR-076")
def test_the_original_form_is_read_to_the_minute() -> None:
    ((found,), refused) = xml.read(SAMPLE, NOW)
    assert refused == []
    assert xml.violations(xml.parse(SAMPLE)) == []
    assert found.stamp_ns == NOW - 60 * SECOND
    assert (found.node, found.uri, found.user_group) == ("gf1.example.org", "niotcp://gf1.example.org:9000", "A")
    assert (found.latency_ms, found.deviation_ms, found.jitter_ms, found.loss) == (2.5, 1.2, 0.4, 0.0)


def test_a_tiny_number_has_no_exponent() -> None:
    document = xml.export([record(latency_ms=1e-7, bandwidth=1e22)])
    assert b"<avg_latency>0.0000001</avg_latency>" in document
    assert xml.query(xml.parse(document), "number(//avg_latency) < 0.0001") == [True]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"<Std_dev>1.2", b"<Std_dev>-1.2", "deviation_ms: -1.2 is negative"),
        (b"<avg_latency>2.5", b"<avg_latency>fast", "avg_latency: 'fast' is no number"),
        (b"<avg_latency>2.5", b"<avg_latency>NaN", "'NaN' is no number"),
        (b"<time>11:59pm", b"<time>23:59", "date, time: .* is not like"),
        (b"<jitter>0.4</jitter>", b"<shoe>4</shoe>", "shoe: this element is not known"),
        (b"<jitter>0.4</jitter>", b"<Jitter>1</Jitter><jitter>2</jitter>", "jitter: is there twice"),
        (b"<Node_ID>gf1.example.org</Node_ID>", b"", "Node_ID: is missing"),
        (b"<performancedata>", b'<performancedata stamp="soon">', "stamp: 'soon' is not like"),
        (b"<performancedata>", b'<performancedata owner="me">', "owner: this attribute is not known"),
        (b"<performancedata>", b'<performancedata window="-3">', "window: '-3' is no count"),
    ],
)
def test_a_bad_row_is_refused_and_the_others_stay(old: bytes, new: bytes, reason: str) -> None:
    bad = SAMPLE.replace(old, new).removeprefix(b"<P_Metrics>\n")
    taken, refused = xml.read(SAMPLE.replace(b"</P_Metrics>", b"") + bad, NOW)
    assert len(taken) == 1
    (only,) = refused
    assert only.line == 13
    assert re.search(reason, only.reason), only.reason


BILLION = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><P_Metrics>&b;</P_Metrics>'
OUTSIDE = b'<!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><P_Metrics><Node_ID>&x;</Node_ID></P_Metrics>'


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (BILLION, "line 1: <!DOCTYPE is not allowed: no DTD and no entities; remove it"),
        (OUTSIDE, "<!DOCTYPE is not allowed"),
        (BILLION.decode().encode("utf-16"), "not well-formed UTF-8 XML"),
        (b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE', "not well-formed UTF-8 XML"),
        (b"<P_Metrics>&undefined;</P_Metrics>", "not well-formed UTF-8 XML: Entity 'undefined' not defined"),
        (b"<P_Metrics><a></P_Metrics>", "not well-formed UTF-8 XML"),
        (b"", "not well-formed UTF-8 XML"),
        (b"<a>" * 200 + b"</a>" * 200, "nested deeper than 3"),
        (b"<a>" * 5000 + b"</a>" * 5000, "not well-formed UTF-8 XML: Excessive depth"),
        (b"<other/>", "the root is other; it must be P_Metrics or performancedata"),
    ],
)
def test_hostile_documents_are_refused_with_the_reason(document: bytes, reason: str) -> None:
    with pytest.raises(XmlError, match=reason) as caught:
        xml.parse(document)
    assert "\n" not in str(caught.value)


def test_a_document_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_BYTES", 100)
    with pytest.raises(XmlError, match="at most 100 are read; divide it"):
        xml.parse(SAMPLE)


def test_an_inclusion_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    document = (
        f'<P_Metrics xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{secret}" parse="text"/></P_Metrics>'
    )
    taken, refused = xml.read(document.encode(), NOW)
    assert taken == []
    assert "only performancedata is known here" in refused[0].reason


def test_the_schema_says_where_a_document_breaks_it() -> None:
    (told,) = xml.violations(xml.parse(SAMPLE.replace(b"<lossrate>0.0", b"<lossrate>7")))
    assert told.startswith("line 9:")
    assert "lossrate" in told


@pytest.mark.spec("MR-092")
def test_xpath_finds_records_texts_and_numbers() -> None:
    records = [record(uri=f"tcp://host:{port}", latency_ms=float(port)) for port in range(1, 5)]
    tree = xml.parse(xml.export(records))
    assert xml.query(tree, "//performancedata[avg_latency > 2]") == records[2:]
    assert xml.query(tree, "//performancedata[avg_latency = 1]/link_ID") == ["tcp://host:1"]
    assert xml.query(tree, "sum(//avg_latency) div count(//avg_latency)") == [2.5]
    assert xml.query(tree, "string(//link_ID)") == ["tcp://host:1"]


@pytest.mark.parametrize("expression", ["//[", "nothing(1)", "document('/etc/passwd')", "x:y", "1" * 3000])
def test_a_bad_xpath_is_an_error_in_one_line(expression: str) -> None:
    with pytest.raises(XmlError, match="XPath"):
        xml.query(xml.parse(SAMPLE), expression)


@pytest.mark.spec("MR-103")
def test_the_stylesheet_makes_a_sorted_page() -> None:
    records = [record(node=name, latency_ms=latency) for name, latency in (("a", 1.0), ("b", 3.0), ("<c>", 2.0))]
    page = document_fromstring(xml.html(xml.parse(xml.export(records)), title="East & west"))
    assert page.findtext(".//h1") == "East & west"
    assert [row.findtext("td") for row in page.findall(".//tr")[1:]] == ["b", "<c>", "a"]
    by_jitter = xml.html(xml.parse(xml.export(links(20))), sort="jitter")
    shown = [float(row[5].text or "") for row in document_fromstring(by_jitter).findall(".//tr")[1:]]
    assert shown == sorted(shown, reverse=True)


def test_a_stylesheet_of_a_user_reads_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text("<secret>12345</secret>")
    sheet = tmp_path / "own.xsl"
    text = (
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:template match="/"><xsl:value-of select="{}"/></xsl:template></xsl:stylesheet>'
    )
    sheet.write_text(text.format("count(//performancedata)"))
    assert b"1" in xml.html(xml.parse(SAMPLE), sheet)
    sheet.write_text(text.format(f"document('{secret}')"))
    with pytest.raises(XmlError, match=r"own.xsl failed: .*rights"):
        xml.html(xml.parse(SAMPLE), sheet)
    sheet.write_text("<broken")
    with pytest.raises(XmlError, match=r"own.xsl: is no stylesheet"):
        xml.html(xml.parse(SAMPLE), sheet)
    with pytest.raises(XmlError, match=r"none.xsl: cannot be read"):
        xml.html(xml.parse(SAMPLE), tmp_path / "none.xsl")


@pytest.mark.spec("MR-125")
@pytest.mark.parametrize("number", [100, 1600, 16_000])
def test_export_query_and_view_hold_for_many_links(number: int) -> None:
    records = links(number)
    tree = xml.parse(xml.export(records))
    assert xml.violations(tree) == []
    slow = xml.query(tree, "/P_Metrics/performancedata[avg_latency > 80]")
    assert slow == [each for each in records if each.latency_ms is not None and each.latency_ms > 80]
    page = xml.html(tree)
    assert page.count(b"<tr>") == number + 1


class TestFlatFile:
    @pytest.mark.spec("MR-090")
    def test_it_is_written_in_sequence_and_queried_by_xpath(self, tmp_path: Path) -> None:
        path = tmp_path / "flat.xml"
        flat = FlatFile(path)
        records = links(10)
        flat.append(records[:4])
        FlatFile(path).append(records[4:])
        assert xml.read(path.read_bytes(), NOW + SECOND) == (records, [])
        assert flat.query("count(//performancedata)") == [10.0]
        assert flat.query("//performancedata[Node_ID = 'n3']") == [records[3]]

    def test_what_a_killed_process_left_half_written_is_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "flat.xml"
        records = links(3)
        FlatFile(path).append(records)
        whole = path.read_bytes()
        for end in range(len(xml.HEAD), len(whole) - 1, 37):
            path.write_bytes(whole[:end])
            found, refused = xml.read(FlatFile(path).path.read_bytes(), NOW + SECOND)
            assert refused == []
            assert found == records[: len(found)]

    @pytest.mark.spec("MR-131")
    def test_it_is_bounded(self, tmp_path: Path) -> None:
        flat = FlatFile(tmp_path / "flat.xml", max_bytes=20_000)
        for start in range(0, 400, 10):
            flat.append(links(400)[start : start + 10])
        assert flat.path.stat().st_size <= 20_000
        assert flat.before.stat().st_size <= 20_000
        (last,) = flat.query("string((//performancedata)[last()]/link_ID)")[-1:]
        assert last == "tcp://host-399:9000"

    def test_another_file_is_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "letter"
        path.write_text("dear all")
        with pytest.raises(StoreError, match="is no file of measurements"):
            FlatFile(path)
        assert path.read_text() == "dear all"
        with pytest.raises(StoreError, match="cannot be written"):
            FlatFile(tmp_path / "none" / "flat.xml")


def test_the_shipped_files_are_whole() -> None:
    assert str(etree.fromstring(xml.resource(xml.SCHEMA)).tag).endswith("schema")
    assert str(etree.fromstring(xml.resource(xml.STYLE)).tag).endswith("stylesheet")
