"""What a cost update costs a node, against the source's figure."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from bench import adaptation_map

SOURCE_MS = 8.0


@pytest.mark.spec("MR-124")
def test_an_update_in_a_map_of_a_thousand_links_is_absorbed_within_the_source_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In CPU time, which is what others do to this machine least; the bench has the sharper bar, in wall time."""
    monkeypatch.setattr(adaptation_map, "time", SimpleNamespace(perf_counter=time.process_time))
    absorbed_ms, _ = adaptation_map.absorb()
    assert 0 < absorbed_ms < SOURCE_MS
