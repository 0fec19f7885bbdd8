"""One more subscriber costs no call of the allocator: counted in the C library, not by the engine itself (GS-072)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COUNTER = """
#include <stddef.h>
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static unsigned long calls;
void *malloc(size_t size) { __sync_fetch_and_add(&calls, 1); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { __sync_fetch_and_add(&calls, 1); return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { __sync_fetch_and_add(&calls, 1); return __libc_realloc(old, size); }
unsigned long allocator_calls(void) { return calls; }
"""
PROGRAM = """
import ctypes, json, sys
from chappe.engine._engine import Engine
from tests.model.engine import STATUS, frame
from tests.unit.engine.test_engine import PUBLISHER, define, event, record, written

calls = ctypes.CDLL(None).allocator_calls
calls.restype = ctypes.c_ulong
before = calls()
kept = [bytearray(100) for _ in range(100)]
assert calls() - before >= 100, "they are counted"

def counted(subscribers):
    engine = Engine()
    publisher = engine.open_port(issuer=PUBLISHER)
    ports = [engine.open_port(issuer=bytes([number, 1]) * 8) for number in range(subscribers)]
    for variable in range(1, 51):
        engine.status.set_variable(variable, 3, 100_000_000, [publisher])
        for path, port in enumerate(ports):
            engine.status.setup_path(variable, port, path, [0], [3], 0xFFFF)
    for port in ports:
        engine.topics.subscribe(port, "#")
    engine.feed(publisher, define(1, "a"))
    spent = 0
    for number in range(40):
        data = frame(STATUS, b"".join(record(v, number * 33_333_333) for v in range(1, 51)))
        data += b"".join(event(number * 50 + each) for each in range(1, 51))
        before = calls()
        engine.feed(publisher, data)
        if number >= 20:
            spent += calls() - before
        for port in ports:
            written(engine, port)
    assert engine.port_counters(ports[-1])["status_out"] == 40 * 50
    assert engine.port_counters(ports[-1])["events_out"] == 40 * 50
    return spent

print(json.dumps([counted(number) for number in (1, 8, 200)]))
"""


@pytest.mark.spec("GS-072")
def test_a_copy_for_one_more_port_calls_no_allocator(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "the package is compiled on this machine"
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, source], check=True)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc",
                   "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    one, eight, many = json.loads(done.stdout)
    assert one == eight == many, "20 rounds of 100 messages each, by the number of subscribers"
