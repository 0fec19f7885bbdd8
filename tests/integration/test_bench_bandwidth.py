"""Bandwidth estimated by real nodes: through a relay of bytes, and over real TCP between network namespaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bench.bandwidth_runs import Line, Run, in_namespaces, on_sockets
from bench.namespaces import Namespaces
from chappe.errors import ChappeError

LINE = Line(10, 5)
pytestmark = pytest.mark.timeout(400)


def check(measure: Callable[[Sequence[Line], float], list[Run]]) -> None:
    """A machine that is busy with something else makes it coarse: then it gets more time, and its last word counts."""
    for seconds in (15.0, 30.0, 60.0):
        (run,) = measure([LINE], seconds)
        if 0.5 < run.points[-1][1] / run.line.rate < 1.5:
            assert 0 < run.trains <= run.share < 0.03
            return
    pytest.fail(f"the line carries {LINE.rate:g} bytes a second, the last estimates are {run.points[-5:]}")


@pytest.mark.spec("MR-136")
def test_real_nodes_find_out_what_a_relay_carries() -> None:
    check(on_sockets)


@pytest.mark.spec("MR-136")
def test_real_nodes_find_out_what_tcp_carries() -> None:
    if Namespaces.obstacle():
        with pytest.raises(ChappeError, match="no network namespaces"):
            in_namespaces([LINE], 15.0)
        return
    check(in_namespaces)
