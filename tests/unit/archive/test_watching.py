"""Which variables an archive takes, by the names in its file."""

from __future__ import annotations

import pytest

from chappe.archive.config import Variables
from chappe.archive.watching import chosen_of

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
    assert [variable for variable, _ in chosen_of([Variables(name=name) for name in names], KNOWN)] == chosen


def test_the_first_entry_that_fits_says_the_interval() -> None:
    wanted = [Variables(name="pmu1/*", interval_s=1.0), Variables(name="*/*")]
    found = dict(chosen_of(wanted, KNOWN))
    assert [found[variable].interval_s for variable in KNOWN] == [1.0, None, None]
