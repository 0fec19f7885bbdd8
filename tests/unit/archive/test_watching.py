"""Which variables an archive takes, by the names in its file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chappe.archive.config import Archive, Variables
from chappe.archive.sink import Sink
from chappe.archive.watching import Watching, match_variables
from chappe.client._status import StatusStream

KNOWN = [("pmu1", "volts"), ("pmu2", "volts"), ("meter", "a/b")]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["*/*"], KNOWN),
        (["pmu*/volts"], KNOWN[:2]),
        (["meter/a/b"], KNOWN[2:]),
        (["meter/*"], KNOWN[2:]),
        (["other/one"], [("other", "one")]),  # it is asked for although nobody lists it
        (["other/*"], []),
    ],
)
def test_names_and_patterns(names: list[str], chosen: list[tuple[str, str]]) -> None:
    assert [variable for variable, _ in match_variables([Variables(name=name) for name in names], KNOWN)] == chosen


def test_the_first_entry_that_fits_says_the_interval() -> None:
    wanted = [Variables(name="pmu1/*", interval_s=1.0), Variables(name="*/*")]
    found = dict(match_variables(wanted, KNOWN))
    assert [found[variable].interval_s for variable in KNOWN] == [1.0, None, None]


async def test_values_that_there_was_no_time_for_at_the_end_are_counted(tmp_path: Path) -> None:
    class Stuck(StatusStream):
        """Has three values, and gives none."""

        def __len__(self) -> int:
            return 3

    async def never(stream: Any) -> None:
        await asyncio.Event().wait()

    client: Any = SimpleNamespace(node_name="a", flooded=lambda max_queue: Stuck())
    of = Archive(name="plant", folder=str(tmp_path), log=str(tmp_path), flooded=True)
    watching = Watching(of, Sink(of), client)
    running = asyncio.ensure_future(watching.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    watching._values = never  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await watching.take_rest()
    watching.leave_rest()
    assert watching.dropped == 3
