"""Spark in a process of its own, ordered line by line; its memory is that of the JVM and of all Python workers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Self

from chappe.errors import ChappeError

HEAP = "2g"  # of the JVM
SAMPLE_S = 0.05


class Driver:
    """Answers orders until it is closed; `peak_bytes` is the most that it and its children held at once."""

    def __init__(self, cores: int, heap: str = HEAP) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed at the end
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pipeline_driver", str(cores), heap],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self.peak_bytes = 0
        self._over = threading.Event()
        self._sampling = threading.Thread(target=self._sample, daemon=True)
        self._sampling.start()

    def __enter__(self) -> Self:
        self.versions: dict[str, str] = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sampling.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def do(self, what: str, **order: Any) -> dict[str, Any]:
        """What came of an order, with the seconds it took; ChappeError if the process failed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps({"do": what, **order}) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()[-8:]
            raise ChappeError(f"the Spark process ended: {' | '.join(said) or 'it said nothing'}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ChappeError(answer["failed"])
        return answer

    def _sample(self) -> None:
        import psutil

        mine = psutil.Process(self._process.pid)
        while not self._over.wait(SAMPLE_S):
            held = 0
            with contextlib.suppress(psutil.Error):
                for each in (mine, *mine.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        held += each.memory_info().rss
            self.peak_bytes = max(self.peak_bytes, held)


def main() -> None:
    """Serve orders from stdin."""
    cores, heap = sys.argv[1:]
    from bench import pipeline_orders  # after the arguments: it needs Spark
    from chappe.pipeline.spark import session

    # Where Spark and its workers print is no answer to an order.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scratch = tempfile.mkdtemp(prefix="chappe-bench-spark-")
    settings = {"spark.driver.memory": heap, "spark.local.dir": scratch}
    spark = session(f"local[{cores}]", settings=settings)
    print(json.dumps({"spark": spark.version, "java heap": heap}), file=answers, flush=True)
    try:
        for line in sys.stdin:
            order = json.loads(line)
            began = time.perf_counter()
            try:
                told = pipeline_orders.ORDERS[order.pop("do")](spark, **order)
                answer = {"seconds": time.perf_counter() - began, **(told or {})}
            except Exception as error:  # whatever it is, who asked must hear of it
                answer = {"failed": f"{type(error).__name__}: {str(error)[:600]}"}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        spark.stop()
        for path in sorted(Path(scratch).rglob("*"), reverse=True):
            path.unlink() if path.is_file() or path.is_symlink() else path.rmdir()
        Path(scratch).rmdir()


if __name__ == "__main__":
    main()
