"""What a test left behind in this process: sockets, child processes, asyncio tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable

import psutil

GRACE_S = 10.0


def sockets() -> dict[str, str]:
    """Open sockets of this process, by inode, with what they are connected to."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if target.startswith("socket:"):
            found[target] = f"descriptor {descriptor}"
    return found


def children() -> dict[str, str]:
    """Living child processes, with their command lines."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and "multiprocessing.resource_tracker" not in command:
                found[f"{child.pid}/{child.create_time()}"] = f"{child.pid} {command[:120]}"
        except psutil.NoSuchProcess:
            continue
    return found


def tasks() -> dict[str, str]:
    """Unfinished tasks of the running loop but the current one."""
    current = asyncio.current_task()
    return {str(id(task)): repr(task) for task in asyncio.all_tasks() if task is not current}


def left(count: Callable[[], dict[str, str]], before: dict[str, str]) -> list[str]:
    """What `count` finds now and did not find before, after a grace for what is just closing."""
    deadline = time.monotonic() + GRACE_S
    new = _new(count, before)
    if new:
        gc.collect()
    while new and time.monotonic() < deadline:
        time.sleep(0.02)  # closing is done by the kernel and by other processes: nothing here to await
        new = _new(count, before)
    return new


async def tasks_left(before: dict[str, str]) -> list[str]:
    """Tasks that are still running after the loop had a chance to finish them."""
    deadline = time.monotonic() + GRACE_S
    new = _new(tasks, before)
    while new and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        new = _new(tasks, before)
    return new


def _new(count: Callable[[], dict[str, str]], before: dict[str, str]) -> list[str]:
    return [text for key, text in count().items() if key not in before]
