"""What a write must be followed by to survive a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Put the content of a file on disk, whoever wrote it, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_out(path: Path) -> None:
    """Put the content of a file on disk and out of memory: whoever reads it next gets what the disk holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def ensure_folder(path: Path) -> None:
    """Have a folder whose name, and that of every folder above it that had to be made, survive a power cut.

    A folder that is there may be one that a process made before it was killed: its name is synced as well.
    """
    path = path.absolute()
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    with contextlib.suppress(PermissionError):  # a folder above that may not be read is not one that we made
        sync(path.parent)
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        try:
            sync(each.parent)
        except OSError:  # a later sync that works says nothing about this name: the next try makes it anew
            with contextlib.suppress(OSError):
                each.rmdir()
            raise
