"""Processes that a bench starts: services whose lines are kept, and workers that answer by lines of JSON."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from bench import commits, ending
from bench.peers.common import environment, process_cpu_s
from chappe.errors import ChappeError, LinkError

START_S = 60.0
KEPT = 8  # lines that an error shows


class Started:
    """`python -m …` in a session of its own."""

    def __init__(self, *arguments: str, folder: Path | None = None) -> None:
        self._name = " ".join(arguments[:3])
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment(), start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def children(self) -> list[psutil.Process]:
        """Living processes below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def until(self, said: Callable[[str], bool], within_s: float = START_S) -> None:
        """Wait for such a line; LinkError with the last ones if it ends before, or does not come."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or any(map(said, self.lines)), within_s)
            if not any(map(said, self.lines)):
                raise LinkError(f"{self._name} does not start; it said: {self.last()}")

    def last(self) -> str:
        """What it said last."""
        return " / ".join(self.lines[-KEPT:]) or "nothing"

    def stop(self, within_s: float = 30.0) -> None:
        """End it in order, then whatever of it is left."""
        family = self.children()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        ending.end([process for process in family if process.is_running()])
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._reading.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                with self._changed:
                    self.lines.append(line.strip())
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Answering:
    """`python -m …` of a bench that takes and gives lines of JSON."""

    def __init__(
        self, name: str, *arguments: str, tree: Path | None = None, shared: Sequence[int] = (), quiet: bool = False
    ) -> None:
        """`tree`: another source tree whose module it is; `shared`: descriptors that it inherits.

        `quiet`: what it says beside its answers is not shown.
        """
        module, *rest = arguments
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", commits.module(module, tree), *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=tuple(shared), stderr=subprocess.DEVNULL if quiet else None, env=environment(tree),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def send(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(line) + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line that it writes; ChappeError if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChappeError(f"{self._name} ended without a result")
        said: dict[str, Any] = msgspec.json.decode(line)
        if "error" in said:
            raise ChappeError(f"{self._name}: {said['error']}")
        return said

    def check(self) -> None:
        """Raise what it died of, if it did."""
        if self._process.poll() is not None:
            raise ChappeError(f"{self._name} ended early: {str(self.answer())[:300]}")

    def cpu_s(self) -> float:
        return process_cpu_s(self._process.pid)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def serving(line: str) -> bool:
    """What a node or a broker says once it can be reached."""
    return line == "serving"
