"""A given number of mutated and cut buffers through the ordinary engine; checks for leaks, too.

python tests/fuzz/mutate.py --count 1000000
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.mesh import Mesh, good_stream, mutated, pieces


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run(count: int, seed: int) -> tuple[int, int]:
    """Buffers fed, and growth of resident memory after the first tenth."""
    pick = random.Random(seed)
    fed, settled, mesh = 0, 0, Mesh("sparse")
    while fed < count:
        mesh.inputs += 1
        if mesh.inputs > 2000:
            gc.collect()  # an engine and those it asks hold each other
            mesh = Mesh("close" if pick.random() < 0.5 else "sparse")
        fed += mesh.play(mutated(pick, pieces(pick, good_stream(pick))))
        mesh.check()
        if not settled and fed > count // 10:
            settled = resident_bytes()
    return fed, resident_bytes() - settled


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    fed, growth = run(options.count, options.seed)
    took = time.monotonic() - started
    print(f"{fed} buffers in {took:.0f} s, memory grew by {growth / 1e6:.1f} MB after the first tenth")
