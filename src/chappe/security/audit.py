"""The audit log of administration: who did what, when, and how it ended; each line on disk before the answer leaves.

What changes something has two lines: the intent, on disk before it is done, and the outcome. Both carry one number.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chappe.disk import sync
from chappe.errors import ConfigError
from chappe.security.config import Audit
from chappe.security.identity import Identity
from chappe.security.redact import redacted

_MODE = 0o600


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log."""

    time: str  # UTC, for people
    time_ns: int
    who: str  # name of the identity
    role: str
    how: str  # certificate, token, dev or local
    serial: str = ""  # of the certificate or token
    action: str
    target: str
    outcome: str  # "intent", "done", "denied" or "failed"
    reason: str = ""
    number: int = 0  # of the intent and its outcome
    details: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be written down; `who` is None for somebody at this machine."""

    who: Identity | None
    action: str
    target: str
    outcome: str
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    number: int = 0


class AuditLog:
    """Appends JSON lines, synced before `record` returns; rotates by size. Safe to call from several threads.

    `record` and `record_all` wait for the disk: on an event loop call it through `asyncio.to_thread`. A disk that
    refuses is an OSError each time, and the next call tries again. A file that failed to sync is not written again:
    the system may have dropped what it could not write, so the next line goes to another file. A folder that failed to
    sync cannot be had anew, and no name in it is sure any more: from then on every call is an OSError.
    """

    def __init__(self, config: Audit, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._path, self._max_bytes, self._keep = Path(config.path), config.max_bytes, config.keep
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._torn = False  # a write failed half way: the next line must not be glued to its rest
        self._closed = False
        self._due = False  # the next line goes to another file
        self._broken = ""  # why the folder cannot be trusted
        self._descriptor, self._size = -1, 0
        try:
            self._open()
        except OSError as error:
            raise ConfigError(f"{self._path}: the audit log cannot be opened: {error.strerror}") from None

    def record(
        self, who: Identity | None, action: str, target: str, outcome: str, reason: str = "", **details: Any
    ) -> AuditEntry:
        """Write one line; `who` is None for somebody at this machine.

        OSError if the disk refuses: then refuse the action, too.
        """
        return self.record_all([Line(who, action, target, outcome, reason, details)])[0]

    def record_all(self, lines: Sequence[Line]) -> list[AuditEntry]:
        """Write lines in order and wait for the disk once. OSError: refuse all of these actions."""
        now_ns = self._clock_ns()
        entries = [_entry(line, now_ns) for line in lines]
        text = b"".join(msgspec.json.encode(entry, enc_hook=repr) + b"\n" for entry in entries)
        with self._lock:
            if self._closed:
                raise ConfigError(f"{self._path}: the audit log is closed")
            if self._broken:
                reason = f"its folder failed to sync ({self._broken}); mend the disk, then start the node again"
                raise OSError(errno.EIO, reason, str(self._path))
            if self._due or (self._size and self._size + len(text) > self._max_bytes):
                self._rotate()
            if self._descriptor < 0:
                self._open()
            self._append(text)
        return entries

    def close(self) -> None:
        """Close the file; nothing is lost, each line is on disk already."""
        with self._lock:
            self._closed = True
            self._release()

    def _append(self, line: bytes) -> None:
        line = b"\n" + line if self._torn else line
        self._torn, written = True, 0
        while written < len(line):
            done = os.write(self._descriptor, line[written:])
            written += done
            self._size += done
        try:
            os.fsync(self._descriptor)
        except OSError:
            self._release()
            self._due = True
            raise
        self._torn = False

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            size = os.fstat(descriptor).st_size
            # A crash in the middle of a write leaves half a line; the next one must not be glued to it.
            self._torn = bool(size) and os.pread(descriptor, 1, size - 1) != b"\n"
            self._sync_folder()
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._size = descriptor, size

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rotate(self) -> None:
        """Give files the next number, up to the first that is free; each name is synced before it is used again.

        Done again after a failure half way it moves nothing twice.
        """
        self._release()
        self._due = True  # until it is done
        taken = [self._path, *(self._rotated_path(number) for number in range(1, self._keep + 1))]
        free = next((place for place, path in enumerate(taken) if not path.exists()), self._keep)
        for place in range(free, 0, -1):
            os.replace(taken[place - 1], taken[place])
            self._sync_folder()
        self._due = False

    def _sync_folder(self) -> None:
        try:
            sync(self._path.parent)
        except OSError as error:
            if error.errno == errno.EIO:  # others, such as too many open files, drop nothing
                self._broken = error.strerror or str(error)
            raise

    def _rotated_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _entry(line: Line, now_ns: int) -> AuditEntry:
    who = line.who
    return AuditEntry(
        time=datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat(timespec="milliseconds"),
        time_ns=now_ns,
        who=who.name if who else "local",
        role=who.role if who else "admin",
        how=who.how if who else "local",
        serial=who.serial if who else "",
        action=line.action,
        target=str(redacted(line.target)),
        outcome=line.outcome,
        reason=str(redacted(line.reason)),
        number=line.number,
        details=redacted(line.details),
    )
