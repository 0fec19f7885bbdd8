"""Averages over time and what they show: by link, transport or client, by hour of the day, and where it is slow."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from chappe.aggregation.access import EVERYTHING, View
from chappe.errors import ConfigError
from chappe.measure.record import FIELDS, METRICS, Record
from chappe.store.records import DAY_NS, HOUR_NS, NAMES, RecordStore

WEEK_NS = 7 * DAY_NS
MONDAY_NS = 4 * DAY_NS  # 1970 began on a Thursday
PERIODS = {"hour": HOUR_NS, "day": DAY_NS, "week": WEEK_NS}
BY = {
    "link": "link", "uri": "uri", "node": "node", "client": "peer", "peer": "peer", "transport": "transport",
    "realm": "realm", "profile": "profile",
}  # fmt: skip
Row = dict[str, Any]


def averages(
    store: RecordStore,
    *,
    by: Sequence[str] = ("link",),
    per_ns: int | None = None,
    since_ns: int = 0,
    until_ns: int = 1 << 62,
    link: str = "",
    view: View = EVERYTHING,
) -> list[Row]:
    """Mean of each metric for each group, in each period of `per_ns` or over the whole time (MR-093, 094, 095).

    Hours and days begin at full hours and at midnight UTC, weeks on Monday.
    """
    columns = [_column(name) for name in by]
    keys = list(columns)
    if per_ns is not None:
        if per_ns <= 0:
            raise ConfigError(f"a period of {per_ns} ns cannot be; give a positive one")
        start = MONDAY_NS if per_ns % WEEK_NS == 0 else 0
        keys.append(f"(stamp_ns - {start}) / {int(per_ns)} * {int(per_ns)} + {start}")
    where, values = view.where()
    sql = (
        f"SELECT {', '.join([*keys, 'count(*)', *_means(view)])} FROM perf_record "
        f"WHERE stamp_ns >= :since AND stamp_ns < :until AND {where}"
    )
    if link:
        sql += " AND link = :one_link"
        values["one_link"] = link
    if keys:
        positions = ", ".join(str(number + 1) for number in range(len(keys)))
        sql += f" GROUP BY {positions} ORDER BY {positions}"
    names = [*by, *(["start_ns"] if per_ns is not None else []), "records", *METRICS]
    rows = store.query(sql, since=since_ns, until=until_ns, **values)
    return [dict(zip(names, row, strict=True)) for row in rows if row[len(keys)]]


def by_hour(
    store: RecordStore,
    link: str,
    *,
    since_ns: int = 0,
    until_ns: int = 1 << 62,
    week: bool = False,
    view: View = EVERYTHING,
) -> list[Row]:
    """The profile of a link: mean of each metric for each hour of the day, or of the week from Monday on (MR-096)."""
    hours, start = (168, MONDAY_NS) if week else (24, 0)
    where, values = view.where()
    sql = (
        f"SELECT (stamp_ns - {start}) / {HOUR_NS} % {hours}, count(*), {', '.join(_means(view))} FROM perf_record "
        f"WHERE link = :one_link AND stamp_ns >= :since AND stamp_ns < :until AND {where} GROUP BY 1 ORDER BY 1"
    )
    rows = store.query(sql, one_link=link, since=since_ns, until=until_ns, **values)
    return [dict(zip(("hour", "records", *METRICS), row, strict=True)) for row in rows]


def bottlenecks(
    store: RecordStore,
    *,
    metric: str = "cost",
    factor: float = 2.0,
    since_ns: int = 0,
    until_ns: int = 1 << 62,
    view: View = EVERYTHING,
) -> list[Row]:
    """Links whose mean is `factor` times the median of all links or more, worst first, and when they are (MR-097)."""
    if metric not in METRICS or metric == "bandwidth":
        raise ConfigError(
            f"metric {metric!r}: give one of {', '.join(name for name in METRICS if name != 'bandwidth')}"
        )
    means = averages(store, by=("link", "uri", "node", "peer"), since_ns=since_ns, until_ns=until_ns, view=view)
    known = [row for row in means if row[metric] is not None]
    if not known:
        return []
    median = statistics.median(row[metric] for row in known)
    slow = [row for row in known if row[metric] > 0 and row[metric] >= factor * median and row[metric] > median]
    slow.sort(key=lambda row: (-row[metric], row["link"], row["node"]))
    return [
        {
            "link": row["link"], "uri": row["uri"], "node": row["node"], "peer": row["peer"], metric: row[metric],
            "times_median": row[metric] / median if median else None,
            "busy_hours": _busy_hours(store, row["link"], metric, since_ns, until_ns, view),
        }
        for row in slow
    ]  # fmt: skip


def important(store: RecordStore, number: int = 10, since_ns: int = 0, view: View = EVERYTHING) -> list[str]:
    """The links that steer routes most: cost advertised most often, then measured most often (MR-098)."""
    where, values = view.where()
    sql = (
        "SELECT link, sum(CASE WHEN published THEN 1 ELSE 0 END), count(*) FROM perf_record "
        f"WHERE stamp_ns >= :since AND {where} GROUP BY link ORDER BY 2 DESC, 3 DESC, 1 LIMIT {int(number)}"
    )
    return [row[0] for row in store.query(sql, since=since_ns, **values)]


def history(
    store: RecordStore,
    link: str,
    *,
    since_ns: int = 0,
    until_ns: int = 1 << 62,
    limit: int = 10_000,
    view: View = EVERYTHING,
) -> list[Record]:
    """The newest records of a link, oldest first."""
    where, values = view.where()
    sql = (
        f"SELECT {NAMES} FROM perf_record WHERE link = :one_link AND stamp_ns >= :since AND stamp_ns < :until "
        f"AND {where} ORDER BY stamp_ns DESC, node LIMIT {int(limit)}"
    )
    rows = store.query(sql, one_link=link, since=since_ns, until=until_ns, **values)
    return _visible(rows[::-1], view)


def current(store: RecordStore, where: str = "1 = 1", view: View = EVERYTHING) -> list[Record]:
    """The newest record of each end of each link; `where`: of `conditions.sql`."""
    rows_of_view, values = view.where()
    visible = ", ".join(
        f'CAST(NULL AS double precision) AS "{n}"' if n in METRICS and n not in view.metrics else f'"{n}"'
        for n in FIELDS
    )
    # The condition is about what the group sees, so that it cannot find out by asking what is hidden from it.
    inside = f"SELECT {visible} FROM perf_link WHERE {rows_of_view}"
    rows = store.query(f"SELECT {NAMES} FROM ({inside}) AS seen WHERE {where} ORDER BY node, uri, link", **values)
    return _visible(rows, view)


def records(
    store: RecordStore, since_ns: int = 0, until_ns: int = 1 << 62, limit: int = 1_000_000, view: View = EVERYTHING
) -> list[Record]:
    """All records of a time, in the order of time."""
    where, values = view.where()
    sql = (
        f"SELECT {NAMES} FROM perf_record WHERE stamp_ns >= :since AND stamp_ns < :until AND {where} "
        f"ORDER BY stamp_ns, link, node LIMIT {int(limit)}"
    )
    return _visible(store.query(sql, since=since_ns, until=until_ns, **values), view)


def of_row(row: Sequence[Any]) -> Record:
    """The record of a row of the tables; by name, because a query makes thousands and a dictionary a row costs most."""
    (
        link, node, stamp_ns, uri, peer, realm, user_group, transport, interval_ms, window, outliers, latency_ms,
        deviation_ms, jitter_ms, jitter, loss, bandwidth, cost, profile, published, origin, version,
    ) = row  # fmt: skip
    return Record(
        link=link, node=node, stamp_ns=stamp_ns, uri=uri, peer=peer, realm=realm, user_group=user_group,
        transport=transport, interval_ms=interval_ms, window=window, outliers=outliers, latency_ms=latency_ms,
        deviation_ms=deviation_ms, jitter_ms=jitter_ms, jitter=jitter, loss=loss, bandwidth=bandwidth, cost=cost,
        profile=profile, published=bool(published), origin=origin, version=version,  # SQLite keeps 0 and 1
    )  # fmt: skip


def _visible(rows: Sequence[Sequence[Any]], view: View) -> list[Record]:
    return [seen for row in rows if (seen := view.visible_part(of_row(row))) is not None]


def _means(view: View) -> list[str]:
    return [f"avg({name})" if name in view.metrics else "NULL" for name in METRICS]


def _column(name: str) -> str:
    if name not in BY:
        raise ConfigError(f"averages by {name!r}: give one of {', '.join(BY)}")
    return BY[name]


def _busy_hours(store: RecordStore, link: str, metric: str, since_ns: int, until_ns: int, view: View) -> list[int]:
    """Hours of the day in which the link is at least a quarter worse than it is on the whole."""
    profile = [row for row in by_hour(store, link, since_ns=since_ns, until_ns=until_ns, view=view) if row[metric]]
    if len(profile) < 2:
        return []
    mean = statistics.fmean(row[metric] for row in profile)
    return [row["hour"] for row in profile if row[metric] >= 1.25 * mean]
