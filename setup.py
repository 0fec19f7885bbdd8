"""Build of the compiled modules: every `.pyx` under `src/`, with the C compiler alone.

Those under `bench/` are built in place only (`make build`): the benches are not part of what is installed.

`CHAPPE_EXT=engine` builds only modules whose name contains that word;
`CHAPPE_CFLAGS` is appended to the compiler flags (sanitizers).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = (Path("src"), Path())  # what a module's name is relative to
FLAGS = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function", *os.environ.get("CHAPPE_CFLAGS", "").split()]
WANTED = os.environ.get("CHAPPE_EXT", "")


def extensions() -> list[Extension]:
    found = []
    for source, package in zip(SOURCES, ("chappe", "bench"), strict=True):
        for path in sorted((source / package).rglob("*.pyx")):
            name = ".".join(path.relative_to(source).with_suffix("").parts)
            if WANTED in name:
                found.append(Extension(name, [str(path)], extra_compile_args=FLAGS))
    return found


class BuildModules(build_ext):
    """Translates what is to be built, which depends on where it goes."""

    def finalize_options(self) -> None:
        modules = self.distribution.ext_modules
        if not self.inplace:
            modules = [each for each in modules if not each.name.startswith("bench.")]
        self.distribution.ext_modules = cythonize(
            modules,
            nthreads=0 if len(modules) < 2 else os.cpu_count() or 1,
            include_path=[str(source) for source in SOURCES],
            compiler_directives={
                "language_level": 3,
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
                "embedsignature": True,
                "freethreading_compatible": False,
            },
        )
        super().finalize_options()


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildModules})
