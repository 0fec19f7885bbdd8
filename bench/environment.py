"""Where a benchmark ran: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Machine, kernel and load, without anything that names the host."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def stolen_s() -> float:
    """CPU time since the start that the machine below gave to others although this one wanted it."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
