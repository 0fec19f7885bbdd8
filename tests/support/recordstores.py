"""What holds for tables of measurements in every database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chappe.aggregation import averages, conditions, mining
from chappe.aggregation.access import View
from chappe.aggregation.averages import WEEK_NS
from chappe.errors import ConfigError, StoreError
from chappe.store.opening import open_records
from chappe.store.records import EVENT_COLUMNS, RecordStore
from tests.support.records import DAY, HOUR, LINK, NOW, SECOND, links, record, rows


class RecordStoreContract:
    """Inherit it and give a fixture `place`: the path or url of an empty store."""

    @pytest.fixture
    def store(self, place: str) -> Iterator[RecordStore]:
        store = open_records(place)
        yield store
        store.close()

    @pytest.mark.spec("MR-091")
    def test_what_was_written_is_there_for_the_next_process(self, store: RecordStore, place: str) -> None:
        records = links(30)
        assert store.write(rows(records)) == 30
        again = open_records(place)
        try:
            assert averages.records(again) == records
            assert again.count() == 30
        finally:
            again.close()

    @pytest.mark.spec("MR-127")
    def test_a_repeated_write_changes_nothing(self, store: RecordStore) -> None:
        records = links(5)
        store.write(rows(records))
        assert store.write(rows(records)) == 0
        assert store.write(rows([*records[:3], record(stamp_ns=NOW + 9)])) == 1
        assert store.count() == 6

    def test_the_newest_of_each_end_is_current_whatever_the_order(self, store: RecordStore) -> None:
        store.write(rows([record(stamp_ns=NOW + 2, latency_ms=2.0), record(stamp_ns=NOW + 1, latency_ms=1.0)]))
        store.write(rows([record(stamp_ns=NOW, latency_ms=0.5), record(node="b", stamp_ns=NOW, latency_ms=7.0)]))
        assert [(each.node, each.latency_ms) for each in averages.current(store)] == [("a", 2.0), ("b", 7.0)]

    def test_a_threshold_query_finds_current_rows(self, store: RecordStore) -> None:
        records = links(500)
        store.write(rows(records))
        condition = conditions.parse("latency_ms > 80 and loss >= 0.02 or cost > 99")
        found = averages.current(store, conditions.sql(condition))
        wanted = {
            each.link
            for each in records
            if ((each.latency_ms or 0) > 80 and (each.loss or 0) >= 0.02) or (each.cost or 0) > 99
        }
        assert {each.link for each in found} == wanted != set()

    @pytest.mark.spec("MR-093", "MR-095")
    def test_averages_over_hour_day_week_and_any_duration(self, store: RecordStore) -> None:
        monday = NOW + 4 * DAY
        told = [record(stamp_ns=monday + hour * HOUR, latency_ms=float(hour), loss=None) for hour in range(14 * 24)]
        store.write(rows(told))

        def means(per_ns: int | None, **chosen: Any) -> list[tuple[int, int, float]]:
            found = averages.averages(store, by=("link",), per_ns=per_ns, **chosen)
            assert all(row["link"] == LINK and row["loss"] is None for row in found)
            return [(row.get("start_ns", 0), row["records"], row["latency_ms"]) for row in found]

        assert means(HOUR)[:2] == [(monday, 1, 0.0), (monday + HOUR, 1, 1.0)]
        assert means(DAY)[:2] == [(monday, 24, 11.5), (monday + DAY, 24, 35.5)]
        assert means(WEEK_NS) == [(monday, 168, 83.5), (monday + WEEK_NS, 168, 251.5)]
        assert means(3 * HOUR)[1] == (monday + 3 * HOUR, 3, 4.0)
        assert means(None, since_ns=monday, until_ns=monday + 4 * HOUR) == [(0, 4, 1.5)]
        assert means(None, since_ns=monday + 1000 * DAY) == []

    @pytest.mark.spec("MR-094")
    def test_averages_by_transport_and_client(self, store: RecordStore) -> None:
        told = [
            record(uri=f"{transport}://{client}:{port}", transport=transport, peer=client, latency_ms=latency)
            for port, (transport, client, latency) in enumerate(
                [("tcp", "anna", 10.0), ("tcp", "anna", 20.0), ("udp", "anna", 1.0), ("tcp", "otto", 5.0)]
            )
        ]
        store.write(rows(told))
        found = averages.averages(store, by=("transport", "client"))
        assert [(row["transport"], row["client"], row["latency_ms"]) for row in found] == [
            ("tcp", "anna", 15.0), ("tcp", "otto", 5.0), ("udp", "anna", 1.0),
        ]  # fmt: skip
        with pytest.raises(ConfigError, match="averages by 'colour': give one of link"):
            averages.averages(store, by=("colour",))

    @pytest.mark.spec("MR-096")
    def test_patterns_by_the_hour_of_the_day_and_week(self, store: RecordStore) -> None:
        busy = {9, 10, 11}
        told = [
            record(stamp_ns=NOW + hour * HOUR, latency_ms=50.0 if hour % 24 in busy else 10.0) for hour in range(7 * 24)
        ]
        store.write(rows(told))
        found = averages.by_hour(store, LINK)
        assert [row["hour"] for row in found] == list(range(24))
        assert {row["hour"] for row in found if row["latency_ms"] == 50.0} == busy
        assert all(row["records"] == 7 for row in found)
        week = averages.by_hour(store, LINK, week=True)
        assert [row["hour"] for row in week] == list(range(168))
        assert week[0]["records"] == 1

    @pytest.mark.spec("MR-097", "MR-102")
    def test_bottlenecks_and_the_ways_around_them(self, store: RecordStore) -> None:
        """a-b is slow in the morning, a-c-b is a way around; d hangs on one slow link."""
        told = []
        for uri, node, peer, cost in (("1", "a", "b", 40.0), ("2", "a", "c", 5.0), ("3", "c", "b", 6.0),
                                      ("4", "c", "d", 90.0), ("5", "a", "e", 4.0), ("6", "e", "f", 5.0)):  # fmt: skip
            for hour in range(24):
                morning = 3.0 if uri == "1" and hour in (8, 9) else 1.0
                told.append(record(uri=uri, node=node, peer=peer, cost=cost * morning, stamp_ns=NOW + hour * HOUR))
        store.write(rows(told))
        far, near = mining.detours(store)
        assert (far["peer"], far["advice"], far["around"]) == ("d", "add a link", [])
        assert (near["node"], near["peer"], near["advice"]) == ("a", "b", "avoid")
        assert (near["around"], near["around_cost"]) == (["a", "c", "b"], 11.0)
        assert near["busy_hours"] == [8, 9]
        assert near["times_median"] > 4
        with pytest.raises(ConfigError, match="metric 'colour': give one of latency_ms"):
            averages.bottlenecks(store, metric="colour")

    @pytest.mark.spec("MR-098")
    def test_the_history_of_important_links(self, store: RecordStore) -> None:
        told = [
            record(uri=uri, stamp_ns=NOW + second * SECOND, published=second % every == 0, latency_ms=float(second))
            for uri, every in (("often", 2), ("seldom", 10), ("sometimes", 5))
            for second in range(60)
        ]
        store.write(rows(told))
        chosen = averages.important(store, 2)
        names = {each.link: each.uri for each in told}
        assert [names[link] for link in chosen] == ["often", "sometimes"]
        history = averages.history(store, chosen[0], since_ns=NOW + 50 * SECOND)
        assert [each.latency_ms for each in history] == [float(second) for second in range(50, 60)]
        assert len(averages.history(store, chosen[0], limit=7)) == 7

    @pytest.mark.spec("MR-131")
    def test_history_is_bounded_by_age_and_by_rows(self, store: RecordStore) -> None:
        day_by_day = [record(stamp_ns=NOW + day * DAY, latency_ms=1.0) for day in range(10)]
        store.write(rows(day_by_day))
        store.prune(NOW + 10 * DAY, 5 * DAY, 1000)
        assert [each.stamp_ns for each in averages.records(store)] == [NOW + day * DAY for day in range(5, 10)]
        many = [record(uri="u", stamp_ns=NOW + 9 * DAY + second * SECOND) for second in range(1, 101)]
        few = [record(uri="v", stamp_ns=NOW + 9 * DAY + second * SECOND) for second in range(1, 5)]
        store.write(rows(many + few))
        store.prune(NOW + 10 * DAY, 5 * DAY, 20)
        left = averages.records(store)
        assert [each for each in left if each.uri == "u"] == many[-20:]
        assert [each for each in left if each.uri == "v"] == few
        assert store.write(rows(day_by_day), keep_from_ns=NOW + 5 * DAY) == 0

    def test_a_link_that_is_gone_leaves_the_current_ones(self, store: RecordStore) -> None:
        store.write(rows([record(uri="old"), record(uri="new", stamp_ns=NOW + 9 * DAY)]))
        store.prune(NOW + 10 * DAY, 5 * DAY, 20)
        assert [each.uri for each in averages.current(store)] == ["new"]

    def test_alert_events_know_what_is_open(self, store: RecordStore) -> None:
        def event(rule: str, state: str, stamp_ns: int) -> tuple[object, ...]:
            given: dict[str, object] = dict.fromkeys(EVENT_COLUMNS, "x")
            given |= {"rule": rule, "state": state, "stamp_ns": stamp_ns, "since_ns": stamp_ns}
            return tuple(given.values())

        told = [event("a", "raised", NOW), event("a", "cleared", NOW + 1), event("b", "raised", NOW)]
        store.write((), told)
        store.write((), told)
        assert [row[0] for row in store.open_events()] == ["b"]
        store.write((), [event("a", "raised", NOW + 2)])
        assert sorted(row[0] for row in store.open_events()) == ["a", "b"]
        store.prune(NOW + 100 * DAY, DAY, 10)
        assert sorted(row[0] for row in store.open_events()) == ["a", "b"]
        assert store.query("SELECT count(*) FROM perf_alert_event") == [(2,)]

    def test_rules_and_parties_are_the_newest(self, store: RecordStore) -> None:
        store.rules({"a": "1", "b": "2"}, NOW)
        store.rules({"b": "3"}, NOW)
        assert store.query("SELECT name, rule FROM perf_alert_rule") == [("b", "3")]
        store.write((), (), [("producer", "n1", "east", NOW, "{}")])
        store.write((), (), [("producer", "n1", "east", NOW + 5, "{}")])
        assert store.query("SELECT name, heard_ns FROM perf_party") == [("n1", NOW + 5)]

    @pytest.mark.spec("MR-091")
    def test_users_ask_in_sql_and_change_nothing(self, store: RecordStore) -> None:
        store.write(rows(links(20)))
        names, found = store.select("select node, max(latency_ms) as worst from perf_record group by node order by 2")
        assert names == ["node", "worst"]
        assert len(found) == 20
        assert store.select("select * from perf_link", limit=3)[1].__len__() == 3
        for statement in (
            "delete from perf_record", "update perf_link set cost = 0", "drop table perf_record",
            "select 1; delete from perf_record", "insert into perf_party values ('a','b','c',1,'d')",
            "create table mine (a integer)", "with gone as (delete from perf_record returning 1) select * from gone",
            "selec", "", "select * from nowhere",
        ):  # fmt: skip
            with pytest.raises(StoreError, match="SQL") as caught:
                store.select(statement)
            assert "\n" not in str(caught.value)
        assert store.count() == 20

    @pytest.mark.spec("MR-105")
    def test_a_group_sees_its_rows_and_columns_only(self, store: RecordStore) -> None:
        told = [
            record(node="a", uri="open", latency_ms=1.0, cost=9.0),
            record(node="a", uri="ours", user_group="A", latency_ms=3.0, cost=9.0),
            record(node="b", uri="theirs", user_group="B", latency_ms=100.0, cost=9.0),
        ]
        store.write(rows(told))
        view = View(group="partners", user_groups=("A",), metrics=("latency_ms",))
        assert [(each.uri, each.latency_ms, each.cost) for each in averages.current(store, view=view)] == [
            ("open", 1.0, None), ("ours", 3.0, None),
        ]  # fmt: skip
        assert averages.current(store, "cost > 1", view) == []  # what is hidden cannot be asked for
        (mean,) = averages.averages(store, by=(), view=view)
        assert (mean["latency_ms"], mean["cost"], mean["records"]) == (2.0, None, 2)
        only = View(group="night", user_groups=("*",), nodes=("b",))
        assert [each.uri for each in averages.records(store, view=only)] == ["theirs"]
        assert averages.history(store, told[2].link, view=view) == []
        assert averages.important(store, view=only) == [told[2].link]
