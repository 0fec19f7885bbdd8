"""libFuzzer's way into the engine; needs the build of `build.py` on PYTHONPATH and preloaded.

python tests/fuzz/run.py BUILD_FOLDER -runs=1000000 -max_len=4096
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
from pathlib import Path

sys.setdlopenflags(os.RTLD_GLOBAL | os.RTLD_NOW)  # the engine's coverage reports to the driver

import _libfuzzer  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.mesh import Mesh, good_stream, pieces  # noqa: E402

MESHES: dict[str, Mesh] = {}


def one_input(data: bytes) -> None:
    """A mesh lives for 200 inputs, so that states build up and still end."""
    layout = "close" if data[:1] and data[0] & 1 else "sparse"
    mesh = MESHES.get(layout)
    if mesh is None or mesh.inputs >= 200:
        mesh = MESHES[layout] = Mesh(layout)  # type: ignore[arg-type]
        gc.collect()  # callbacks refer to the mesh before it: its tables go in whatever order the collector likes
    mesh.inputs += 1
    mesh.play(data[1:])
    mesh.check()


if __name__ == "__main__":
    corpus = Path(tempfile.mkdtemp(prefix="chappe-corpus-"))
    pick = random.Random(1)
    for number in range(200):
        (corpus / str(number)).write_bytes(bytes([number & 1]) + pieces(pick, good_stream(pick)))
    _libfuzzer.run([argument.encode() for argument in [*sys.argv, str(corpus)]], one_input)
