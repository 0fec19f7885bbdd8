"""A power cut at any system call: what was acknowledged is there, nothing half is shown; a sample of `bench crash`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import crash
from bench.crash import Laboratory
from bench.crash_workloads import RECOVER
from tests.support.peers import requires

SEED = 3
STATES = 50  # of each kind; `chappe bench crash` looks at all


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    requires("gcc")
    place = crash.SCRATCH if crash.SCRATCH.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="chappe-crash-", dir=place) as folder:
        yield Laboratory(Path(folder), SEED, STATES, time.monotonic() + 600)


@pytest.mark.parametrize("name", RECOVER)
def test_a_power_cut_takes_nothing_that_was_acknowledged(laboratory: Laboratory, name: str) -> None:
    ((root, calls),) = laboratory.trace(name, "")
    outcome = laboratory.crashes(name, root, calls, tears=1)
    assert outcome.tried == STATES
    assert outcome.failures == []


@pytest.mark.parametrize("name", RECOVER)
@pytest.mark.parametrize("fault", ["sync:{0}", "full:{0}:{1}"])
def test_neither_does_one_after_a_sync_or_a_write_that_failed(laboratory: Laboratory, name: str, fault: str) -> None:
    for root, calls in laboratory.trace(name, *(fault.format(number, number + 4) for number in (5, 17))):
        since = len(calls) // 3
        outcome = laboratory.crashes(name, root, calls, tears=1, since=since)
        assert outcome.tried
        assert outcome.failures == []


def test_flipped_bits_and_lost_writes_are_named_and_no_row_is_wrong(laboratory: Laboratory) -> None:
    ((root, calls),) = laboratory.trace("archive", "")
    for outcome in (laboratory.flips(root, calls), laboratory.lies(root, calls)):
        assert outcome.tried == STATES
        assert outcome.failures == []
