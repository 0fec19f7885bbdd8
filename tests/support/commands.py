"""The `chappe` command for tests: always a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "COLUMNS": "100", "TERM": "dumb"}
ENVIRONMENT.pop("CHAPPE_URL", None)
COMMAND = (sys.executable, "-m", "chappe.cli")


def chappe(
    *arguments: object, code: int = 0, stdin: str | bytes = "", timeout_s: float = 40
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it must give that exit code and never a traceback."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    raw = subprocess.run(
        [*COMMAND, *map(str, arguments)], input=given, capture_output=True, env=ENVIRONMENT, timeout=timeout_s
    )  # fmt: skip
    done = subprocess.CompletedProcess(raw.args, raw.returncode, raw.stdout.decode(), raw.stderr.decode())
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def rows(text: str) -> list[dict[str, Any]]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command that runs on; ended with the block."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def read_until(stream: Any, word: str) -> list[str]:
    """Lines up to the one that contains the word."""
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"the stream ended without {word!r}: {lines}")
