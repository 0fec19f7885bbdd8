"""The page around the plots: readable on a phone, on light and on dark, and forbidden to fetch anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from chappe.pipeline.report.ticks import number_text

_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1d2428;--muted:#5f6b6d;--grid:#e3e7ea;--card:#f5f7f8;
--good:#3b7a3f;--bad:#b3261e;--c1:#1b6ca8;--c2:#c1440e;--c3:#4d7d36;--c4:#8d5a97;--c5:#a07c00;--c6:#2a8f83}
@media(prefers-color-scheme:dark){:root{--paper:#14181b;--ink:#e4e9ec;--muted:#9aa6ab;--grid:#2b3338;--card:#1d2327;
--good:#86c98a;--bad:#ff8a80;--c1:#6db3e8;--c2:#f08a5d;--c3:#93c572;--c4:#c79bd1;--c5:#dcb94a;--c6:#63cabd}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;margin:.5rem 0 0}h2{font-size:1.2rem;margin:2.2rem 0 .4rem;border-top:1px solid var(--grid);
padding-top:1rem}h3{font-size:1rem;margin:1.2rem 0 .2rem}
p{margin:.4rem 0}.quiet,footer{color:var(--muted)}nav{margin:.8rem 0;display:flex;flex-wrap:wrap;gap:.3rem 1rem}
a{color:var(--c1)}
.cards{display:flex;flex-wrap:wrap;gap:.6rem;margin:.8rem 0}.cards div{background:var(--card);border-radius:.5rem;
padding:.5rem .8rem;flex:1 1 7rem}.cards b{display:block;font-size:1.25rem}
.cards span{color:var(--muted);font-size:.85rem}
.plot{overflow-x:auto}.plot svg{display:block;width:100%;min-width:34rem;height:auto}
svg text{fill:var(--muted);font-size:12px;font-family:inherit}svg .name{fill:var(--ink)}
svg .grid{stroke:var(--grid);stroke-width:1}svg .none{fill:var(--card)}svg .node{fill:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;align-items:center;color:var(--muted);
font-size:.85rem;margin:.2rem 0}
.key i{display:inline-block;width:1.3rem;margin-right:.35rem;vertical-align:middle;border-top:3px solid var(--k)}
.key i.dash{border-top-style:dashed}.key i.dot{width:.6rem;height:.6rem;border:0;border-radius:50%;background:var(--k)}
.key i.band{height:.7rem;border:0;background:var(--k);opacity:.3}.scale{display:inline-block;width:8rem;height:.7rem;
border-radius:.3rem}
.table{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--grid);white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
@media print{body{max-width:none}.plot svg{min-width:0}}
"""
# Whatever a table of a job holds, the page fetches nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

Cell = str | float | int | bool | None


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading."""

    key: str
    title: str
    content: str


def page(title: str, subtitle: str, cards: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    """The whole file."""
    contents = "".join(f'<a href="#{each.key}">{escape(each.title)}</a>' for each in sections)
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in cards)
    body = "".join(
        f'<section id="{each.key}"><h2>{escape(each.title)}</h2>{each.content}</section>' for each in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f'<body><header><h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p>'
        f'<div class="cards">{shown}</div><nav>{contents}</nav></header>\n<main>{body}</main>\n'
        "<footer><p>Times are UTC. Point at a line, a cell or a dot to read its value.</p></footer></body></html>\n"
    )


def sentence(text: str) -> str:
    """A paragraph where a plot cannot be, or beside one."""
    return f'<p class="quiet">{escape(text)}</p>'


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Numbers to the right, True and False as a verdict in colour and words."""
    listed = [tuple(row) for row in rows]
    whole = [all(_is_number(row[at]) or row[at] is None for row in listed) for at in range(len(columns))]
    head = "".join(
        f"<th{' class=n' if right else ''}>{escape(name)}</th>" for name, right in zip(columns, whole, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in listed)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Cell) -> str:
    if isinstance(value, bool):
        return '<td class="good">kept</td>' if value else '<td class="bad">missed</td>'
    if isinstance(value, float | int):
        return f'<td class="n">{escape(number_text(float(value)) if isinstance(value, float) else f"{value:,}")}</td>'
    return f"<td>{escape(value or '–')}</td>"


def _is_number(value: Cell) -> bool:
    return (
        isinstance(value, float | int)
        and not isinstance(value, bool)
        and not (isinstance(value, float) and math.isinf(value))
    )
