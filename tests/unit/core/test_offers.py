"""What a neighbour looks for it may have, as long as it looks for it by any route."""

from __future__ import annotations

import pytest

from chappe.core.directory import Entry
from chappe.core.offers import Offers
from chappe.wire.control import Variable

PLACE = (1, "west")


@pytest.mark.parametrize("pattern", ["plant/speed", "plant/#"])
def test_one_of_two_routes_to_a_place_ends_and_the_variable_may_still_go_there(pattern: str) -> None:
    offers = Offers("east/n1")
    entry = Entry(Variable(5, "plant", "speed", "float", 1, 1, 3, 0), origin="west/n9")
    offers.add(3, "n2", PLACE, pattern)
    offers.add(3, "n2", PLACE, pattern)
    offers.remove(3, PLACE, pattern)
    assert offers.cover(3, entry)
    offers.remove(3, PLACE, pattern)
    assert not offers.cover(3, entry)
