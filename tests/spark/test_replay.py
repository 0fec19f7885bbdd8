"""Replay sets (SJ-11): every event once, in one order that no issuer's own order contradicts."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.jobs.replay import CLOCKS, INVERSIONS, REPLAY, SLICES, Replay
from tests.support.cleanrows import SECOND_NS, START_NS, clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000
JOB = Replay(slice_s=2.0, delay_ms=5.0, topics="plant/#")


def published() -> list[dict[str, Any]]:
    """Two publishers whose clocks are right and 3 s ahead, heard by two archives, one of which is 1 s behind."""
    noise = random.Random(11)
    rows = []
    for sequence in range(40):
        for issuer, ahead in ((b"right", 0), (b"ahead", 3 * SECOND_NS)):
            made = START_NS + sequence * 100 * MS + (50 * MS if ahead else 0)
            for source, behind in (("east", 0), ("west", SECOND_NS)):
                if source == "east" or sequence % 4 == 0:
                    way = noise.randrange(1 * MS, 4 * MS) + (300 * MS if sequence == 20 and not ahead else 0)
                    rows.append(
                        {"topic": f"plant/{sequence % 2}", "kind": "s", "issuer": issuer, "epoch": 1,
                         "sequence": sequence, "created_ns": made + ahead, "received_ns": made + way - behind,
                         "source": source, "node": source, "body": b"%d" % sequence}
                    )  # fmt: skip
    return rows


@pytest.mark.spec("SJ-11")
def test_events_are_in_one_order_by_corrected_time_once_each(spark: SparkSession) -> None:
    rows = published()
    strays = [
        {"topic": "mill", "issuer": b"right", "epoch": 1, "sequence": 99, "created_ns": START_NS},
        {"topic": "plant/late", "issuer": b"mute", "epoch": 1, "sequence": 1, "received_ns": START_NS + 30},
        # a clock that was set back while it was running
        {"topic": "plant/0", "kind": "s", "issuer": b"right", "epoch": 2, "sequence": 1,
         "created_ns": START_NS + 9 * MS, "received_ns": START_NS + 10 * MS, "source": "east"},
        {"topic": "plant/0", "kind": "s", "issuer": b"right", "epoch": 2, "sequence": 2,
         "created_ns": START_NS + 7 * MS, "received_ns": START_NS + 11 * MS, "source": "east"},
    ]  # fmt: skip
    mixed = [*rows, *rows[::5], *strays]
    random.Random(2).shuffle(mixed)
    made = JOB.run({"events": clean(spark, "events", mixed).cache()}, 0)
    for name, schema in (("replay", REPLAY), ("replay_slices", SLICES), ("replay_inversions", INVERSIONS)):
        assert made[name].columns == schema.names

    clocks = {row["name"]: row for row in made["replay_clocks"].collect()}
    assert made["replay_clocks"].columns == CLOCKS.names
    ahead = clocks[f"{b'ahead'.hex().upper()}.1"]
    assert abs(ahead["offset_ns"] - 3 * SECOND_NS) <= ahead["uncertainty_ns"] <= 5 * MS
    assert abs(clocks["west"]["offset_ns"] + SECOND_NS) <= clocks["west"]["uncertainty_ns"]
    assert clocks[f"{b'right'.hex().upper()}.1"]["offset_ns"] == 0

    replay = made["replay"].orderBy("position").collect()
    assert [row["position"] for row in replay] == list(range(83))
    identities = [(bytes(row["issuer"]), row["epoch"], row["sequence"]) for row in replay]
    assert len(set(identities)) == 83
    stamps = [row["corrected_ns"] for row in replay]
    assert stamps == sorted(stamps)
    assert [each for each in identities if each[:2] == (b"ahead", 1)] == [(b"ahead", 1, n) for n in range(40)]
    alternating = [each[0] for each in identities if each[0] != b"mute" and each[1] == 1]
    assert alternating == [b"right", b"ahead"] * 40  # as it was, though one clock is 3 s ahead
    mute = replay[identities.index((b"mute", 1, 1))]
    assert (mute["stamped"], mute["created_ns"], mute["uncertainty_ns"]) == (False, None, 5 * MS)
    again = [row["corrected_ns"] for row in replay if row["epoch"] == 2]
    assert again == [START_NS + 9 * MS] * 2

    zero = [row for row in replay if row["topic"] == "plant/0"]
    for before, row in pairwise(zero):
        same = before["slice"] == row["slice"]
        assert row["gap_ns"] == (row["corrected_ns"] - before["corrected_ns"] if same else 0)
    slices = {(row["topic"], row["slice"]): row for row in made["replay_slices"].collect()}
    assert sum(row["events"] for row in slices.values()) == 83
    for (topic, number), one in slices.items():
        mine = [row for row in replay if (row["topic"], row["slice"]) == (topic, number)]
        assert (one["events"], one["from_ns"], one["to_ns"]) == (
            len(mine),
            mine[0]["corrected_ns"],
            mine[-1]["corrected_ns"],
        )
        assert (one["first_position"], one["last_position"]) == (mine[0]["position"], mine[-1]["position"])
        assert number == one["from_ns"] // (2 * SECOND_NS) == one["to_ns"] // (2 * SECOND_NS)

    told = {(row["reason"], row["topic"], row["epoch"]): row for row in made["replay_inversions"].collect()}
    clock = told["clock", None, 2]
    assert (clock["inversions"], clock["worst_ns"], bytes(clock["issuer"])) == (1, 2 * MS, b"right")
    assert told["network", "plant/0", None]["inversions"] >= 1  # one event took 300 ms
    assert ("clock", None, 1) not in told


@pytest.mark.spec("SJ-11")
def test_nothing_a_part_and_wrong_parameters(spark: SparkSession) -> None:
    made = JOB.run({"events": clean(spark, "events")}, 0)
    assert [frame.count() for frame in made.values()] == [0, 0, 0, 0]
    part = Replay(topics="plant/+", from_ns=START_NS + SECOND_NS, to_ns=START_NS + 2 * SECOND_NS)
    chosen = part.run({"events": clean(spark, "events", published())}, 0)["replay"].collect()
    assert len(chosen) == 20
    with pytest.raises(ConfigError, match="only at the end"):
        Replay(topics="#/a").run({"events": clean(spark, "events")}, 0)
    with pytest.raises(ConfigError, match="slice_s"):
        Replay(slice_s=0.0).run({"events": clean(spark, "events")}, 0)
