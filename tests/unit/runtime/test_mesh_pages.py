"""The pages of a mesh: what is on them, and what hostile names can do there."""

from __future__ import annotations

import json
import math
from typing import Any
from xml.etree import ElementTree

from chappe.runtime.mesh.pages import chart, pages, picture, table

HOSTILE = '<script src="http://evil">&"\'</script>'
LINK: dict[str, Any] = {
    "name": "east", "status": "connected", "kind": "tcp", "mean_ms": 1.25, "deviation_ms": 0.5, "jitter_ms": 0.1,
    "loss": 0.05, "bandwidth_bps": 12.5e6, "cost": 2.5, "interval_s": 1.0,
}  # fmt: skip


def test_the_table_has_a_row_a_link_and_a_dash_for_what_was_not_measured() -> None:
    shown = table([LINK, {"name": "west", "mean_ms": None, "cost": math.nan}])
    assert shown.count("<tr>") == 3
    for text in ('href="/links?link=east"', ">1.25<", ">5<", ">100<", "–"):
        assert text in shown
    assert "[measure]" in table([])


def test_names_of_others_are_only_text() -> None:
    row = {**LINK, "name": HOSTILE, "kind": HOSTILE, "from": HOSTILE, "to": "b"}
    for shown in (table([row]), picture(HOSTILE, [row])):
        assert "<script" not in shown
        assert "&lt;script" in shown


def test_drawings_are_well_formed() -> None:
    history = [{"age_s": 10.0 - step, "rtt_ms": float(step % 4), "mean_ms": 1.0, "loss": 0.0} for step in range(10)]
    links = [
        {"from": "a", "to": "b", "cost": 1.0, "kind": "tcp"},
        {"from": "a", "to": "east/hall", "cost": None, "suspect": True},
        {"from": "b", "to": "east/hall", "cost": 9.0},
    ]
    for shown in (chart(history), picture("a", links), picture("alone", [])):
        svg = shown[shown.index("<svg") : shown.index("</svg>") + 6]
        ElementTree.fromstring(svg)
    assert "No answer came yet" in chart([])


def test_pages_answer_with_html_json_or_what_is_missing() -> None:
    asked: list[tuple[str, str]] = []

    def rows(what: str, name: str) -> tuple[str, list[dict[str, Any]]]:
        asked.append((what, name))
        if what == "history":
            return "me", [] if name == "nobody" else [{"age_s": 1.0, "rtt_ms": 2.0}, {"age_s": 0.5, "rtt_ms": math.nan}]
        if what == "publications":
            return "me", [{"topic": "<7>", "kind": "l", "at": "east", "level": 0, "clients": None}]
        return "me", [LINK] if what == "links" else [{"from": "me", "to": "east", "cost": 1.0}]

    served = pages(rows)
    assert served["/links"]({})[0] == 200
    assert served["/links"]({"link": "nobody"})[0] == 404
    assert b"<svg" in served["/links"]({"link": "east"})[2]
    assert b"<svg" in served["/map"]({})[2]
    assert b"<td>long:&lt;7&gt;</td><td>east</td>" in served["/map"]({})[2]
    assert json.loads(served["/links.json"]({"link": "east"})[2])["rows"][1]["rtt_ms"] is None
    assert json.loads(served["/map.json"]({})[2]) == {"node": "me", "rows": [{"from": "me", "to": "east", "cost": 1.0}]}
    assert ("history", "east") in asked
