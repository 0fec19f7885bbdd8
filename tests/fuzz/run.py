"""Run libFuzzer on the engine built with sanitizers.

python tests/fuzz/build.py build/fuzz
python tests/fuzz/run.py build/fuzz -runs=1000000 -max_len=4096
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from build import runtime


def command(folder: Path, arguments: list[str], clang: str = "clang") -> tuple[list[str], dict[str, str]]:
    """What to execute, and its environment: the driver first, the sanitizer has weak symbols of its names."""
    driver = next((folder / "lib").glob("_libfuzzer*.so"))
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{driver} {runtime(clang, 'libclang_rt.asan-x86_64.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:quarantine_size_mb=16",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder / "lib"),
    }
    return [sys.executable, str(Path(__file__).parent / "target.py"), *arguments], environment


if __name__ == "__main__":
    argv, environment = command(Path(sys.argv[1]).resolve(), sys.argv[2:])
    raise SystemExit(subprocess.run(argv, env=environment).returncode)
