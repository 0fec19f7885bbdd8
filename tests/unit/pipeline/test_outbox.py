"""The outbox: a batch arrives once, whatever is repeated and wherever a process died."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.job import Publish
from chappe.pipeline.outbox import Outbox, kind_of, ordered


class Died(BaseException):
    """The process ends here."""


class Subscriber:
    """A mesh that drops repeats by (issuer, sequence), and dies when told to."""

    def __init__(self) -> None:
        self.seen: dict[tuple[bytes, int], tuple[str, bytes]] = {}
        self.resent: list[bool] = []
        self.values: list[tuple[str, float, int]] = []
        self.dies_after = -1

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        self.resent.append(resent)
        for place, row in enumerate(rows):
            if place == self.dies_after:
                raise Died
            known = self.seen.setdefault((session, after + place + 1), row)
            assert known == row  # an identity never means two things
        if self.dies_after == len(rows):
            raise Died

    def variables(self, rows: list[tuple[str, float, int]]) -> None:
        self.values += rows


def table(*bodies: str) -> pa.Table:
    return pa.table({"topic": [f"alerts/{body}" for body in bodies], "body": list(bodies), "more": [1] * len(bodies)})


def bodies(mesh: Subscriber) -> list[str]:
    return [body.decode() for _, body in mesh.seen.values()]


def test_batches_are_numbered_through_and_repeats_go_nowhere(tmp_path: Path) -> None:
    mesh = Subscriber()
    outbox = Outbox(tmp_path, Publish.EVENTS, mesh)
    assert outbox.deliver(0, table("b", "a"))
    assert not outbox.deliver(0, table("x"))
    assert outbox.deliver(3, table())
    assert Outbox(tmp_path, Publish.EVENTS, mesh).deliver(4, table("c"))
    assert bodies(mesh) == ["a", "b", "c"]
    assert [sequence for _, sequence in mesh.seen] == [1, 2, 3]
    assert (len({session for session, _ in mesh.seen}), mesh.resent) == (1, [False, False])


@pytest.mark.parametrize("dies_after", range(4))
def test_a_batch_that_was_begun_is_sent_again_as_it_was(tmp_path: Path, dies_after: int) -> None:
    folder, mesh = tmp_path, Subscriber()
    mesh.dies_after = dies_after
    with pytest.raises(Died):
        Outbox(folder, Publish.EVENTS, mesh).deliver(0, table("a", "b", "c"))
    mesh.dies_after = -1
    outbox = Outbox(folder, Publish.EVENTS, mesh)
    outbox.deliver(0, table("d", "b", "a"))  # computed anew, and differently
    outbox.deliver(1, table("e"))
    assert bodies(mesh) == ["a", "b", "c", "e"]
    assert mesh.resent == [False, True, False]


def test_what_was_prepared_for_a_table_that_never_came_is_forgotten(tmp_path: Path) -> None:
    mesh = Subscriber()
    outbox = Outbox(tmp_path, Publish.EVENTS, mesh)
    outbox.prepare(1, table("a"))
    assert not outbox.finish(0)  # the table is still at 0
    outbox.prepare(1, table("b"))
    assert outbox.finish(1)
    assert bodies(mesh) == ["b"]


def test_values_keep_their_times(tmp_path: Path) -> None:
    mesh = Subscriber()
    rows = pa.table({"name": ["p/b", "p/a", "p/a"], "value": [1.0, 2.0, None], "created_ns": [20, 10, 30]})
    Outbox(tmp_path, Publish.VARIABLES, mesh).deliver(0, rows)
    assert mesh.values == [("p/a", 2.0, 10), ("p/b", 1.0, 20)]
    assert json.loads((tmp_path / "state.json").read_text())["sequence"] == 0


def test_two_processes_do_not_share_an_outbox(tmp_path: Path) -> None:
    class Nested(Subscriber):
        def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
            with pytest.raises(ChappeError, match="another process sends from it"):
                Outbox(tmp_path, Publish.EVENTS, self).finish(0)

    Outbox(tmp_path, Publish.EVENTS, Nested()).deliver(0, table("a"))


def test_what_rows_are_is_told_by_their_columns() -> None:
    assert kind_of(["x", "body", "topic"]) is Publish.EVENTS
    assert kind_of(["name", "value", "created_ns"]) is Publish.VARIABLES
    with pytest.raises(ConfigError, match="have the columns topic, body or name, value, created_ns, not name"):
        kind_of(["name"])
    assert ordered(table("b", "a"), Publish.EVENTS).column("body").to_pylist() == ["a", "b"]
