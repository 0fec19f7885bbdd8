"""Plots as SVG inside HTML: colours are those of the page, so that the same plot is right on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from chappe.pipeline.report import ticks

WIDTH, HEIGHT = 760, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 40
SERIES = tuple(f"var(--c{number})" for number in range(1, 7))
_POINTS = 1500  # of a line; more cannot be told apart on paper this wide


@dataclass(frozen=True)
class Axis:
    """What one direction of a plot means."""

    low: float
    high: float
    label: str = ""
    kind: str = "number"  # number, log, time

    def place(self, values: ArrayLike) -> np.ndarray:
        """Where values are, from 0 to 1."""
        given, low, high = np.asarray(values, float), self.low, self.high
        if self.kind == "log":
            given, low, high = np.log10(np.maximum(given, low)), math.log10(low), math.log10(high)
        placed: np.ndarray = (given - low) / (high - low)
        return placed

    def ticks(self) -> list[tuple[float, str]]:
        if self.kind == "time":
            return [(at, ticks.time_text(at, self.high - self.low)) for at in ticks.times(self.low, self.high)]
        found = ticks.powers(self.low, self.high) if self.kind == "log" else ticks.numbers(self.low, self.high)
        return [(at, ticks.number_text(at)) for at in found]


def axis(values: Iterable[ArrayLike], label: str, kind: str = "number", zero: bool = False) -> Axis:
    """An axis on which all these values have room; `zero`: it begins there."""
    joined = np.concatenate([np.asarray(each, float).ravel() for each in values] or [np.array([0.0])])
    known = joined[np.isfinite(joined)]
    if kind == "log":
        known = known[known > 0]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if kind == "log":
        low, high = (low, high) if known.size else (1.0, 10.0)
        return Axis(low / 1.2, high * 1.2, label, kind)
    if zero:
        low = min(low, 0.0)
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    if kind == "time":
        return Axis(low - room * 0.2, high + room * 0.2, label, kind)
    return Axis(low if zero and low == 0 else low - room, high + room, label, kind)


@dataclass
class Plot:
    """Lines, bands and points over two axes; `svg` draws what was added, in that order."""

    across: Axis
    up: Axis
    title: str  # for who cannot see it
    height: int = HEIGHT
    scaled: bool = True  # upwards; else lanes with names
    _drawn: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str, str]] = field(default_factory=list)  # kind, colour, label

    def line(self, xs: ArrayLike, ys: ArrayLike, colour: str, label: str = "", dashed: bool = False) -> None:
        """A line that is interrupted where there is no number."""
        x, y = _thinned(np.asarray(xs, float), np.asarray(ys, float))
        path = _path(*self._at(x, y))
        if path:
            dashes = ' stroke-dasharray="5 4"' if dashed else ""
            self._drawn.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.7"{dashes}/>')
            self._name("dash" if dashed else "line", colour, label)

    def band(self, xs: ArrayLike, lows: ArrayLike, highs: ArrayLike, colour: str, label: str = "") -> None:
        """The room between two lines."""
        x, low, high = (np.asarray(each, float) for each in (xs, lows, highs))
        known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
        if known.sum() > 1:
            there, back = self._at(x[known], high[known]), self._at(x[known][::-1], low[known][::-1])
            path = _path(np.concatenate((there[0], back[0])), np.concatenate((there[1], back[1])))
            self._drawn.append(f'<path d="{path}Z" fill="{colour}" fill-opacity=".18" stroke="none"/>')
            self._name("band", colour, label)

    def points(
        self, xs: ArrayLike, ys: ArrayLike, colour: str, label: str = "", told: Sequence[str] = (),
        radius: float = 3,
    ) -> None:  # fmt: skip
        """Dots; `told` is said of each under the pointer."""
        x, y = self._at(np.asarray(xs, float), np.asarray(ys, float))
        for at in range(len(x)):
            if math.isfinite(x[at]) and math.isfinite(y[at]):
                title = f"<title>{escape(told[at])}</title>" if at < len(told) else ""
                self._drawn.append(
                    f'<circle cx="{x[at]:.1f}" cy="{y[at]:.1f}" r="{radius:g}" fill="{colour}" fill-opacity=".75">'
                    f"{title}</circle>"
                )
        if len(x):
            self._name("dot", colour, label)

    def moments(self, xs: ArrayLike, colour: str, label: str = "", told: Sequence[str] = ()) -> None:
        """Upright lines at times when something happened."""
        given = np.asarray(xs, float)
        x, _ = self._at(given, np.full(len(given), self.up.low))
        for at, place in enumerate(x):
            title = f"<title>{escape(told[at])}</title>" if at < len(told) else ""
            self._drawn.append(
                f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{self.height - _BOTTOM}" stroke="{colour}" '
                f'stroke-width="1.5" stroke-dasharray="2 3">{title}</line>'
            )
        if len(x):
            self._name("dash", colour, label)

    def span(self, start: float, end: float, lane: float, colour: str, label: str, told: str) -> None:
        """A bar in a lane, from one time to another."""
        x, y = self._at(np.array([start, end], float), np.array([lane, lane], float))
        self._drawn.append(
            f'<rect x="{x[0]:.1f}" y="{y[0] - 5:.1f}" width="{max(x[1] - x[0], 3):.1f}" height="10" rx="2" '
            f'fill="{colour}" fill-opacity=".8"><title>{escape(told)}</title></rect>'
        )
        self._name("band", colour, label)

    def label(self, lane: float, text: str) -> None:
        """The name of a lane, inside the plot: names are longer than a margin is wide."""
        _, y = self._at(np.array([self.across.low]), np.array([lane], float))
        self._drawn.append(f'<text class="name" x="{_LEFT}" y="{y[0] - 7:.1f}">{escape(text)}</text>')

    def svg(self) -> str:
        """The plot with its axes and a legend below."""
        grid = "".join((*self._grid(), *self._drawn))
        legend = "".join(
            f'<span class="key"><i class="{kind}" style="--k:{colour}"></i>{escape(label)}</span>'
            for kind, colour, label in self._legend
        )
        return figure(self.title, WIDTH, self.height, grid) + (f'<p class="legend">{legend}</p>' if legend else "")

    def _at(self, xs: np.ndarray, ys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        across = _LEFT + self.across.place(xs) * (WIDTH - _LEFT - _RIGHT)
        return across, self.height - _BOTTOM - self.up.place(ys) * (self.height - _TOP - _BOTTOM)

    def _name(self, kind: str, colour: str, label: str) -> None:
        if label and (kind, colour, label) not in self._legend:
            self._legend.append((kind, colour, label))

    def _grid(self) -> Iterator[str]:
        bottom = self.height - _BOTTOM
        for value, text in self.up.ticks() if self.scaled else ():
            y = float(self._at(np.array([self.across.low]), np.array([value]))[1][0])
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for value, text in self.across.ticks():
            x = float(self._at(np.array([value]), np.array([self.up.low]))[0][0])
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>'
        if self.across.label:
            yield (
                f'<text class="name" x="{WIDTH - _RIGHT}" y="{self.height - 6}" text-anchor="end">'
                f"{escape(self.across.label)}</text>"
            )
        if self.up.label:
            yield f'<text class="name" x="{_LEFT + 6}" y="{_TOP + 10}">{escape(self.up.label)}</text>'


def figure(title: str, width: float, height: float, content: str) -> str:
    """A drawing that is as wide as the page, and can be moved sideways where that is too narrow to read."""
    return (
        f'<div class="plot"><svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{content}</svg></div>"
    )


def shade(share: float) -> str:
    """A colour between calm (0) and alarming (1) that is told from its neighbours on light and on dark."""
    stops = ((38, 84, 124), (42, 157, 143), (233, 196, 106), (231, 111, 81), (176, 30, 50))
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    below = min(int(at), len(stops) - 2)
    return "#" + "".join(
        f"{round(low + (high - low) * (at - below)):02x}"
        for low, high in zip(stops[below], stops[below + 1], strict=True)
    )


def scale(low: str, high: str, label: str) -> str:
    """What the colours of `shade` mean."""
    steps = ",".join(shade(step / 8) for step in range(9))
    bar = f'<i class="scale" style="background:linear-gradient(90deg,{steps})"></i>'
    return (
        f'<p class="legend"><span>{escape(low)}</span>{bar}<span>{escape(high)}</span><span>{escape(label)}</span></p>'
    )


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest of each stretch where there are more points than can be drawn."""
    if len(x) <= _POINTS:
        return x, y
    kept: list[int] = []
    for part in np.array_split(np.arange(len(x)), _POINTS // 2):
        known = part[np.isfinite(y[part])]
        chosen = {int(known[y[known].argmin()]), int(known[y[known].argmax()])} if known.size else {int(part[0])}
        kept.extend(sorted(chosen))
    return x[kept], y[kept]


def _path(xs: np.ndarray, ys: np.ndarray) -> str:
    pieces, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            pieces.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(pieces)
