"""Charts as PNG files; no display is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chappe.errors import ChappeError

COLOURS = ("#1b6ca8", "#c1440e", "#6a994e", "#8d5a97", "#b08900", "#5f6b6d", "#d1495b", "#2a9d8f")


def bars(path: Path, title: str, unit: str, groups: Mapping[str, Mapping[str, tuple[float, float]]]) -> Path:
    """One panel a group, one bar a system: (median, spread as a share of it)."""
    plt = _pyplot()
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    columns = min(3, len(groups))
    lines = math.ceil(len(groups) / columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.6 * columns, 3.2 * lines), squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (label, group) in zip(axes.flat, groups.items(), strict=False):
        for at, name in enumerate(names):
            if name in group:
                value, share = group[name]
                axis.bar(at, value, yerr=value * share, color=COLOURS[at % len(COLOURS)], capsize=3)
        axis.set_title(label, fontsize=9)
        axis.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=7)
        axis.set_ylabel(unit, fontsize=8)
        axis.set_yscale("log")
    figure.suptitle(title, fontsize=11)
    return _save(plt, figure, path)


def curves(path: Path, title: str, across: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> Path:
    """Log-log lines of points."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for at, (label, points) in enumerate(lines.items()):
        measured = [point for point in points if point[1] > 0]
        if measured:
            axis.plot(*zip(*measured, strict=True), marker="o", label=label, color=COLOURS[at % len(COLOURS)])
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(True, which="both", alpha=0.25)
    axis.legend(fontsize=8)
    axis.set_title(title, fontsize=11)
    return _save(plt, figure, path)


def planes(path: Path, title: str, panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Path:
    """One panel a plane, with the points of each kind in a colour of their own; the first kind is small and grey."""
    plt = _pyplot()
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 4.2 * lines), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (label, kinds) in zip(axes.flat, panels.items(), strict=False):
        for at, (kind, points) in enumerate(kinds.items()):
            colour, size = (COLOURS[at % len(COLOURS)], 14) if at else ("#b9c0c4", 3)
            axis.scatter([p[0] for p in points], [p[1] for p in points], s=size, c=colour, label=kind)
        axis.set_title(label, fontsize=9)
        axis.set_aspect("equal")
        axis.legend(fontsize=6, loc="upper right")
    figure.suptitle(title, fontsize=11)
    return _save(plt, figure, path)


def series(path: Path, title: str, across: str, panels: Mapping[str, Sequence[tuple[float, float]]]) -> Path:
    """One panel a series, over time, from zero."""
    plt = _pyplot()
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.6 * columns, 2.6 * lines), squeeze=False, sharex=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for at, (axis, (label, points)) in enumerate(zip(axes.flat, panels.items(), strict=False)):
        axis.plot(*zip(*points, strict=True), color=COLOURS[at % len(COLOURS)], linewidth=1)
        axis.set_ylim(bottom=0)
        axis.set_title(label, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(True, alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel(across, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return _save(plt, figure, path)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the least-squares line through the points on logarithmic axes."""
    logs = [(math.log(x), math.log(y)) for x, y in points if y > 0]
    if len(logs) < 2:
        return float("nan")
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ChappeError("charts need matplotlib: pip install 'chappe[bench]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def _save(plt: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
