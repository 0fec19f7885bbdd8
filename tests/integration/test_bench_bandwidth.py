"""Bandwidth estimated by real nodes: through a relay of bytes, and over real TCP between network namespaces."""

from __future__ import annotations

import pytest

from chappe.bench.bandwidth_runs import Line, Run, in_namespaces, on_sockets
from chappe.bench.namespaces import Namespaces
from chappe.errors import ChappeError

LINE = Line(10, 5)


def check(run: Run) -> None:
    assert 0.5 < run.points[-1][1] / run.line.rate < 1.5, "a busy machine makes it coarse"
    assert 0 < run.trains <= run.share < 0.03


@pytest.mark.spec("MR-136")
def test_real_nodes_find_out_what_a_relay_carries() -> None:
    (run,) = on_sockets([LINE], 15.0)
    check(run)


@pytest.mark.spec("MR-136")
def test_real_nodes_find_out_what_tcp_carries() -> None:
    if Namespaces.obstacle():
        with pytest.raises(ChappeError, match="no network namespaces"):
            in_namespaces([LINE], 15.0)
        return
    (run,) = in_namespaces([LINE], 15.0)
    check(run)
