"""Starts the two processes of a measurement: nodes at the far end that answer, nodes at the near end that measure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.measured_nodes import Rows
from bench.peers.common import environment
from chappe.errors import ChappeError

SPARE_S = 60.0  # for processes to start and links to come up


def measure(
    far: Sequence[str],
    near: Sequence[str],
    seconds: Mapping[str, float],
    intervals_ms: Mapping[str, float] | None = None,
    *,
    dev: bool = True,
    far_prefix: Sequence[str] = (),
    near_prefix: Sequence[str] = (),
) -> dict[str, Rows]:
    """What each node at the near end found out about its links, from the files of all nodes (see measured_nodes)."""
    processes = [_started(far_prefix, {"files": far, "dev": dev})]
    try:
        task = {"files": near, "dev": dev, "seconds": seconds, "intervals_ms": intervals_ms or {}}
        processes.append(_started(near_prefix, task))
        told, _ = processes[1].communicate(timeout=max(seconds.values()) + SPARE_S)
    except subprocess.TimeoutExpired:
        told = ""
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    lines = told.splitlines()
    if len(lines) != 2:
        raise ChappeError(
            "the nodes that measure have ended without figures; those at the far end may not have started"
        )
    found: dict[str, Rows] = json.loads(lines[-1])
    return found


def _started(prefix: Sequence[str], task: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "bench.measured_nodes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    return process
