"""A second engine, built with clang and its sanitizers, in its own folder; users never need it.

python tests/fuzz/build.py FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parents[2]
SANITIZE = "-fsanitize=address,undefined,fuzzer-no-link"
FLAGS = ["-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-fno-strict-aliasing", "-w", SANITIZE]


def runtime(clang: str, name: str) -> str:
    """Path of a file of clang's run-time library."""
    asked = [clang, f"-print-file-name={name}"]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        found = next((str(path) for path in Path("/usr/lib").glob(f"llvm-*/lib/clang/*/lib/linux/{name}")), "")
    if not found:
        raise SystemExit(f"{name} is missing: install the run-time library of clang (Debian: libclang-rt-14-dev)")
    return found


def modules() -> list[Extension]:
    engine = sorted((ROOT / "src/chappe/engine").glob("*.pyx"))
    found = [Extension(f"chappe.engine.{path.stem}", [str(path.relative_to(ROOT))]) for path in engine]
    return [*found, Extension("_libfuzzer", ["tests/fuzz/_libfuzzer.pyx"])]


def build(folder: Path, clang: str = "clang") -> None:
    """Compile every engine module and the driver into `folder`."""
    from Cython.Build import cythonize

    os.chdir(ROOT)
    os.environ["CC"] = clang
    os.environ["LDSHARED"] = f"{clang} -shared"
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    extensions = cythonize(
        modules(), include_path=["src"], compiler_directives=directives, build_dir=str(folder / "c"), quiet=True
    )
    for extension in extensions:
        extension.extra_compile_args = FLAGS
        extension.extra_link_args = [SANITIZE, "-shared-libasan"]
        if extension.name == "_libfuzzer":
            archive = runtime(clang, "libclang_rt.fuzzer_no_main-x86_64.a")
            extension.extra_link_args += ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-lstdc++", "-lm"]
    command = build_ext(Distribution({"ext_modules": extensions}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    package = folder / "lib/chappe"
    plain = [path for name in ("engine", "wire") for path in (ROOT / "src/chappe" / name).rglob("*.py")]
    for source in (ROOT / "src/chappe/errors.py", *plain):
        target = folder / "lib" / source.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
    (package / "__init__.py").write_text("")


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
