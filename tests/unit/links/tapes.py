"""Builds and loads the compiled test stack; built once for each version of its source."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SETUP = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup
source, include, out = sys.argv[1:4]
sys.argv[1:] = ["-q", "build_ext", "--build-lib", out, "--build-temp", out + "/objects"]
modules = cythonize([Extension("tape", [source])], include_path=[include], build_dir=out, quiet=True)
setup(name="tape", ext_modules=modules)
"""


def _build() -> Path:
    sources = (HERE / "tape.pyx", ROOT / "src/chappe/engine/_stack.pxd")
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + sys.version.encode()).hexdigest()[:16]
    folder = ROOT / "build" / "tests" / version
    library = folder / f"tape{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not library.exists():
        scratch = folder.with_name(f"{version}.{os.getpid()}")
        command = [sys.executable, "-c", SETUP, str(sources[0]), str(ROOT / "src"), str(scratch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"the test stack does not build:\n{done.stdout}{done.stderr}")
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(scratch / library.name, library)
    return library


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("tape", _build())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Tape


Tape = _load()
