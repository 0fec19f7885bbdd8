"""Build of the compiled modules: every `.pyx` under `src/`, with the C compiler alone.

`CHAPPE_EXT=engine` builds only modules whose name contains that word;
`CHAPPE_CFLAGS` is appended to the compiler flags (sanitizers).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")
FLAGS = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function", *os.environ.get("CHAPPE_CFLAGS", "").split()]
WANTED = os.environ.get("CHAPPE_EXT", "")


def extensions() -> list[Extension]:
    found = []
    for path in sorted(SOURCE.rglob("*.pyx")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if WANTED in name:
            found.append(Extension(name, [str(path)], extra_compile_args=FLAGS))
    return found


setup(
    ext_modules=cythonize(
        extensions(),
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "freethreading_compatible": False,
        },
    ),
)
