"""What history says about settings: coefficients of costs, constants of latency, thresholds and intervals.

Each function gives a finding: what is set, what would be better, on what evidence and with which effect. Where the
evidence is not enough the finding proposes nothing and says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from chappe.errors import ChappeError
from chappe.measure.cost import FLOOR, SHARE, Profile, changed
from chappe.measure.readings import Settings
from chappe.pipeline import network
from chappe.pipeline.network import Network
from chappe.status.allocation.latency_fit import Fit, Run, fit
from chappe.status.topology import Model

Floats = NDArray[np.float64]

COEFFICIENTS = ("overall", "latency", "loss", "jitter")  # K0, KL, KP, KJ
TUNING = 1.345  # of the Huber weights, in spreads: 95 % efficient where errors are normal
ROUNDS = 30
RESAMPLED = 100
TRAINED = 0.7  # of the time; the rest shows whether it holds
CONDITION = 30.0  # beyond, columns of a regression cannot be told apart
BETTER = 0.1  # share by which an error must shrink
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


@dataclass(frozen=True, slots=True)
class Finding:
    """A proposal, or why there is none."""

    kind: str
    subject: str
    samples: int
    current: dict[str, float]
    value: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    effect: dict[str, Any] = field(default_factory=dict)
    reason: str = ""  # why nothing is proposed

    @property
    def proposed(self) -> bool:
        return not self.reason

    def row(self) -> dict[str, Any]:
        """As columns; what is more than a number is JSON."""
        texts = {name: text(getattr(self, name)) for name in ("current", "value", "evidence", "effect")}
        return {"kind": self.kind, "subject": self.subject, "samples": self.samples, "proposed": self.proposed,
                "reason": self.reason, **texts}  # fmt: skip


def text(value: Mapping[str, Any]) -> str:
    """As JSON, rounded to what is meant; the same value is the same text."""
    return json.dumps(_plain(value), sort_keys=True, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.6g}") if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, np.integer) else value


# --- robust regression


def robust(columns: Floats, values: Floats) -> Floats:
    """Coefficients from 0 up that fit most of the values, by Huber's weights: a few wild ones move them little."""
    scale = np.sqrt((columns**2).mean(axis=0))
    scale[scale == 0] = 1.0
    scaled = columns / scale
    weight = np.ones(len(values))
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weight)
        latest = nnls(scaled * root[:, None], values * root)[0]
        apart = np.abs(values - scaled @ latest)
        spread = max(float(np.median(apart)) * 1.4826, 1e-12)
        weight = np.minimum(1.0, TUNING * spread / np.maximum(apart, 1e-12))
        if np.allclose(latest, found, rtol=1e-9, atol=1e-12):
            break
        found = latest
    return np.asarray(latest / scale, dtype=np.float64)


def apart(columns: Floats) -> bool:
    """Whether columns can be told apart: none is nearly a sum of the others."""
    length = np.sqrt((columns**2).sum(axis=0))
    return bool((length > 0).all() and np.linalg.cond(columns / length) <= CONDITION)


# --- deliveries and the ways they took


@dataclass(frozen=True, slots=True)
class Delivery:
    """How long values took between two nodes in a window."""

    window_ns: int
    origin: str
    destination: str
    median_ms: float
    count: int


@dataclass(frozen=True, slots=True)
class Link:
    """What was measured of an arc in a window; NaN is not known."""

    window_ns: int
    node: str
    peer: str
    cost: float
    latency_ms: float
    jitter: float
    loss: float


@dataclass(frozen=True, slots=True)
class Trip:
    """A delivery with what was measured along its way, which is taken to be the cheapest."""

    window_ns: int
    median_ms: float
    count: int
    way: tuple[str, ...]
    latency_ms: float
    jitter: float
    loss: float


def trips(deliveries: Sequence[Delivery], links: Sequence[Link]) -> list[Trip]:
    """Deliveries over links, in the order of time; those within a node or without a known way are left out."""
    by_window: dict[int, list[Link]] = {}
    for link in links:
        by_window.setdefault(link.window_ns, []).append(link)
    asked: dict[int, list[Delivery]] = {}
    for delivery in deliveries:
        asked.setdefault(delivery.window_ns, []).append(delivery)
    found = []
    for window_ns in sorted(asked.keys() & by_window.keys()):
        measured = by_window[window_ns]
        best: dict[tuple[str, str], Link] = {}
        for link in sorted(measured, key=lambda each: -each.cost):
            best[link.node, link.peer] = link  # of parallel links the cheapest stays
        of = Network.of((link.node, link.peer, link.cost) for link in measured)
        place = {name: at for at, name in enumerate(of.names)}
        ways = network.ways(of)
        for each in asked[window_ns]:
            way = _way(ways, place, each.origin, each.destination)
            hops = [best.get((of.names[a], of.names[b])) or best.get((of.names[b], of.names[a]))
                    for a, b in pairwise(way)]  # fmt: skip
            known = [hop for hop in hops if hop is not None and np.isfinite(hop.latency_ms)]
            if not hops or len(known) < len(hops) or not np.isfinite(each.median_ms):
                continue
            found.append(Trip(
                window_ns, each.median_ms, each.count, tuple(of.names[at] for at in way),
                sum(hop.latency_ms for hop in known), _sum(hop.jitter for hop in known),
                _sum(hop.loss for hop in known),
            ))  # fmt: skip
    return found


def _sum(values: Any) -> float:
    return float(sum(value for value in values if np.isfinite(value)))


def _way(ways: network.Ways, place: Mapping[str, int], origin: str, destination: str) -> list[int]:
    if origin not in place or destination not in place or origin == destination:
        return []
    source, at = place[origin], place[destination]
    if not np.isfinite(ways.distance[source, at]):
        return []
    way = [at]
    while way[-1] != source:
        way.append(int(ways.before[source, way[-1]]))
    return way[::-1]


# --- coefficients of costs


def coefficients(taken: Sequence[Trip], current: Profile, least: int) -> Finding:
    """Coefficients by which the cost of a way is the time that values took over it (P8)."""
    kind, subject = "cost", current.name
    now = {name: float(getattr(current, name)) for name in COEFFICIENTS}
    if len(taken) < least:
        return Finding(kind, subject, len(taken), now,
                       reason=f"{len(taken)} windows with deliveries over links; {least} are needed")  # fmt: skip
    values = np.array([trip.median_ms for trip in taken])
    columns = np.array([(len(t.way) - 1, t.latency_ms, t.loss, t.jitter) for t in taken], dtype=np.float64)
    used, left_out = _usable(columns)
    if "latency" not in used:
        return Finding(kind, subject, len(taken), now, evidence={"left_out": left_out},
                       reason="latencies did not change, so nothing says what a change is worth")  # fmt: skip
    split = max(1, int(TRAINED * len(taken)))
    chosen = [COEFFICIENTS.index(name) for name in used]
    design = np.column_stack((np.ones(len(values)), columns[:, chosen]))
    fitted = robust(design[:split], values[:split])
    before = _error(columns @ np.array(list(now.values())), values, split)
    after = float(np.median(np.abs(values[split:] - design[split:] @ fitted))) if split < len(values) else np.nan
    whole = robust(design, values)
    low, high = _intervals(design, values)
    value = now | {name: float(whole[at + 1]) for at, name in enumerate(used)}
    evidence: dict[str, Any] = {
        "windows": len(taken), "deliveries": sum(trip.count for trip in taken), "left_out": left_out,
        "at_ends_ms": float(whole[0]), "ranges": {name: [float(low[at + 1]), float(high[at + 1])]
                                                  for at, name in enumerate(used)},
    }  # fmt: skip
    effect = {"error_ms_now": before, "error_ms_then": after}
    reason = _not_better(before, after, "the error of a way's cost")
    if all(low[at + 1] <= now[name] <= high[at + 1] for at, name in enumerate(used)):
        reason = "the coefficients that are set are within what the data say"
    return Finding(kind, subject, len(taken), now, value, evidence, effect, reason)


def _usable(columns: Floats) -> tuple[list[str], list[str]]:
    """Coefficients that the data determine, and the others: those of what did not change or only with another."""
    used: list[str] = []
    ones = np.ones((len(columns), 1))
    for name in ("latency", "jitter", "loss", "overall"):
        column = columns[:, [COEFFICIENTS.index(name)]]
        chosen = [columns[:, [COEFFICIENTS.index(each)]] for each in used]
        if np.ptp(column) > 1e-9 * max(1.0, float(np.abs(column).max())) and apart(
            np.hstack([ones, *(each - each.mean() for each in [*chosen, column])])
        ):
            used.append(name)
    return used, [name for name in COEFFICIENTS if name not in used]


def _error(cost: Floats, values: Floats, split: int) -> float:
    """The median error of costs as times, after what ends of a way add was fitted on the first part."""
    ends = float(np.median(values[:split] - cost[:split]))
    return float(np.median(np.abs(values[split:] - cost[split:] - ends))) if split < len(values) else float("nan")


def _intervals(design: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Where all but one of a hundred fits of drawn samples lie, with all their coefficients."""
    random = np.random.default_rng(len(values))
    drawn = [robust(design[rows], values[rows])
             for rows in (random.integers(0, len(values), len(values)) for _ in range(RESAMPLED))]  # fmt: skip
    outside = 0.005 / design.shape[1]
    low, high = np.quantile(np.array(drawn), [outside, 1 - outside], axis=0)
    return low, high


def _not_better(before: float, after: float, what: str) -> str:
    if not (np.isfinite(before) and np.isfinite(after)):
        return f"{what} could not be tried on later data"
    if not after <= (1 - BETTER) * before:
        return f"{what} shrinks from {before:.3g} to {after:.3g} ms on later data, by less than {BETTER:.0%}"
    return ""


# --- constants of the latency model


def latency_model(
    taken: Sequence[Trip], events_per_ms: Mapping[tuple[int, str], float], kind_of: str, capacity: float, least: int
) -> Finding:
    """What routers add to the latency of links: at the ends, each when idle, and each by its load (GS-174, J3)."""
    kind = "latency_model"
    model = Model()
    now = {name: float(getattr(model, name)) for name in ("reference_us", "router_us", "loaded_us")}
    runs = []
    for trip in taken:
        loads = [events_per_ms.get((trip.window_ns, name), np.nan) for name in trip.way]
        if np.isfinite(loads).all():
            runs.append(Run(len(trip.way), float(np.mean(loads)), max(0.0, trip.median_ms - trip.latency_ms)))
    if len(runs) < least:
        lacking = f"{len(runs)} windows with deliveries and counters of all routers; {least} are needed"
        return Finding(kind, kind_of, len(runs), now, reason=lacking)
    try:
        found, _ = fit(runs)
        kept = _kept(found, runs)
        found, error = fit(kept)
    except ChappeError as wrong:
        return Finding(kind, kind_of, len(runs), now, evidence={"windows": len(runs)}, reason=str(wrong))
    better = found.model(capacity)
    value = {name: float(getattr(better, name)) for name in now}
    present = Fit(model.reference_us / 1e3, model.router_us / 1e3, model.loaded_us / capacity)
    before = present.error_ms(kept)
    evidence = {
        "windows": len(runs), "left_out": len(runs) - len(kept), "routers": sorted({run.routers for run in runs}),
        "events_per_ms": [min(run.events_per_ms for run in runs), max(run.events_per_ms for run in runs)],
        "router_ms": found.router_ms, "load_ms": found.load_ms, "reference_ms": found.reference_ms,
        "k_events_per_ms2": 1 / found.load_ms if found.load_ms > 0 else None, "capacity_events_s": capacity,
    }  # fmt: skip
    reason = _not_better(before, error, "the error of the latency model")
    if not reason and (found.router_ms < 0 or found.reference_ms < 0):
        reason = "the fit has a negative constant: what was measured does not separate ends from routers"
    return Finding(kind, kind_of, len(runs), now, value, evidence, {"error_ms_now": before, "error_ms_then": error},
                   reason)  # fmt: skip


def _kept(found: Fit, runs: Sequence[Run]) -> list[Run]:
    """Runs without those that the fit is off by far more than usual."""
    off = np.array([abs(found.predict(run.routers, run.events_per_ms) - run.mean_ms) for run in runs])
    limit = max(4 * 1.4826 * float(np.median(off)), 1e-9)
    return [run for run, error in zip(runs, off, strict=True) if error <= limit]


# --- publication threshold


def replayed(costs: Floats, share: float, floor: float = FLOOR) -> tuple[Floats, int]:
    """What was told of each link (a column) after each step, and how often, with a threshold; NaN is not known."""
    told = np.full(costs.shape[1], np.nan)
    seen = np.empty_like(costs)
    count = 0
    for at in range(len(costs)):
        news = changed(costs[at], told, share, floor)
        told = np.where(news, costs[at], told)
        count += int(np.sum(news))
        seen[at] = told
    return seen, count


@dataclass(frozen=True, slots=True)
class Replay:
    """One threshold tried: how often costs were told, and what ways cost more because others were not."""

    share: float
    told: int
    missed: float  # share of ways that were not the cheapest any more and were not changed
    dearer: float  # mean share by which ways cost more than the cheapest


def tried(ends: Sequence[tuple[str, str]], costs: Floats, share: float, floor: float = FLOOR) -> Replay:
    """Ways chosen by what was told against the cheapest, at each step of the costs of arcs (a column each)."""
    seen, told = replayed(costs, share, floor)
    names = tuple(sorted({name for pair in ends for name in pair}))
    place = {name: at for at, name in enumerate(names)}
    arcs = np.array([(place[a], place[b]) for a, b in ends])
    missed = ways = 0
    more = total = 0.0
    best: dict[bytes, network.Ways] = {}
    for true, known in zip(costs, seen, strict=True):
        real = _matrix(len(names), arcs, true)
        cheapest = best.setdefault(true.tobytes(), network.ways(Network(names, real)))
        chosen = best.setdefault(known.tobytes(), network.ways(Network(names, _matrix(len(names), arcs, known))))
        paid = _paid(chosen, real)
        both = np.isfinite(paid) & np.isfinite(cheapest.distance) & ~np.eye(len(names), dtype=np.bool_)
        extra = paid[both] - cheapest.distance[both]
        missed += int((extra > np.maximum(share_of(cheapest.distance[both]), 1e-3)).sum())
        ways += int(both.sum())
        more, total = more + float(np.maximum(extra, 0).sum()), total + float(cheapest.distance[both].sum())
        if len(best) > 64:
            best.clear()
    return Replay(share, told, missed / ways if ways else 0.0, more / total if total else 0.0)


def share_of(distance: Floats) -> Floats:
    """From how much more on a way counts as missed: a hundredth of what it costs."""
    return 0.01 * distance


def _matrix(size: int, arcs: NDArray[np.int64], costs: Floats) -> Floats:
    matrix = np.full((size, size), np.inf)
    known = np.isfinite(costs)
    matrix[arcs[known, 0], arcs[known, 1]] = costs[known]
    return matrix


def _paid(chosen: network.Ways, real: Floats) -> Floats:
    """What the chosen ways cost in truth."""
    size = len(real)
    paid = np.full((size, size), np.inf)
    for source in range(size):
        paid[source, source] = 0.0
        for node in np.argsort(chosen.distance[source], kind="stable").tolist():
            before = int(chosen.before[source, node])
            if before != network.NOWHERE:
                paid[source, node] = paid[source, before] + real[before, node]
    return paid


def threshold(replays: Sequence[Replay], steps: int, least: int, most_missed: float) -> Finding:
    """The largest threshold that leaves few ways behind, if it tells much less or misses much less (P8)."""
    current = {"share": SHARE, "floor_ms": FLOOR}
    by_share = {each.share: each for each in replays}
    now = by_share.get(SHARE)
    evidence = {"steps": steps, "replays": [
        {"share": each.share, "told": each.told, "missed": each.missed, "dearer": each.dearer} for each in replays
    ]}  # fmt: skip
    if now is None or steps < least:
        return Finding("threshold", "publication", steps, current, evidence=evidence,
                       reason=f"{steps} steps of costs; {least} are needed")  # fmt: skip
    fitting = [each for each in replays if each.missed <= most_missed]
    best = max(fitting, key=lambda each: each.share) if fitting else min(replays, key=lambda each: each.missed)
    effect = {"told_now": now.told, "told_then": best.told, "missed_now": now.missed, "missed_then": best.missed}
    reason = ""
    if best.share == SHARE:
        reason = "the threshold that is set is the best of those tried"
    elif now.missed <= most_missed and best.told > (1 - BETTER) * now.told:
        reason = (
            f"a threshold of {best.share:.0%} tells {best.told} instead of {now.told} times: less than a tenth fewer"
        )
    elif now.missed > most_missed and best.missed > (1 - BETTER) * now.missed:
        reason = f"no threshold misses fewer than the {now.missed:.1%} of ways of the present one by a tenth"
    value = {"share": best.share, "floor_ms": FLOOR}
    return Finding("threshold", "publication", steps, current, value, evidence, effect, reason)


# --- intervals of measurement


def interval(
    link: str, created_ns: ArrayLike, cost: ArrayLike, extreme: bool, settings: Settings, least: int, delay_s: float
) -> Finding:
    """How much more seldom a link can be measured without its changes being noticed late or not at all (P9)."""
    stamps, costs = np.asarray(created_ns, dtype=np.int64), np.asarray(cost, dtype=np.float64)
    known = np.isfinite(costs)
    stamps, costs = stamps[known], costs[known]
    now_ns = float(np.median(np.diff(stamps))) if len(stamps) > 1 else float(settings.base_ns)
    current = {"interval_s": now_ns / 1e9}
    if len(stamps) < least:
        return Finding("interval", link, len(stamps), current, reason=f"{len(stamps)} rounds; {least} are needed")
    news = _told_at(stamps, costs, settings)
    found = [(multiple, *_noticed(stamps, costs, news, int(multiple), settings)) for multiple in settings.steps]
    fitting = [each for each in found if each[1] <= 0.05 and each[2] <= delay_s]
    multiple, missed, late_s = max(fitting) if fitting else found[0]
    if extreme:
        multiple, missed, late_s = found[-1]
    evidence = {
        "rounds": len(stamps),
        "changes": len(news),
        "extreme": extreme,
        "hours": float(np.ptp(stamps)) / 3.6e12,
    }
    effect = {"probes_saved": 1 - 1 / multiple, "changes_missed": missed, "noticed_later_s": late_s}
    value = {"interval_s": multiple * now_ns / 1e9}
    reason = "" if multiple > 1 else "it changes too often to be measured more seldom"
    if now_ns * multiple > settings.longest_ns:
        reason = f"it is measured every {now_ns / 1e9:.3g} s already; no link is measured less often than every minute"
    return Finding("interval", link, len(stamps), current, value, evidence, effect, reason)


def _told_at(stamps: NDArray[np.int64], costs: Floats, settings: Settings) -> NDArray[np.int64]:
    """When a cost was told that differs from the one before; the first is no change."""
    seen, _ = replayed(costs[:, None], settings.threshold, settings.floor_ms)
    steps = np.flatnonzero(np.diff(seen[:, 0]) != 0) + 1
    return stamps[steps]


def _noticed(
    stamps: NDArray[np.int64], costs: Floats, news: NDArray[np.int64], multiple: int, settings: Settings
) -> tuple[float, float]:
    """Share of changes that one round in so many does not see before the next, and how much later it sees the rest."""
    if not len(news):
        return 0.0, 0.0
    seen = _told_at(stamps[::multiple], costs[::multiple], settings)
    after = np.searchsorted(seen, news)
    until = np.append(news[1:], stamps[-1] + 1)
    within = np.array([at < len(seen) and seen[at] < end for at, end in zip(after, until, strict=True)])
    later = [float(seen[at] - when) / 1e9 for at, when, ok in zip(after, news, within, strict=True) if ok]
    return float(1 - within.mean()), float(np.mean(later)) if later else 0.0
