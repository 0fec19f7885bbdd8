"""Reading and writing of key material: whole files or none, private keys for their owner alone."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chappe.disk import sync
from chappe.errors import ConfigError

MAX_BYTES = 16 * 1024 * 1024
PRIVATE, PUBLIC = 0o600, 0o644


def read(path: str | Path, what: str) -> bytes:
    """The content of a file; ConfigError names the file, what it should hold, and why it cannot be had."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: {what} is larger than {MAX_BYTES} bytes; this is another file")
    return content


def write(path: Path, content: bytes, mode: int = PUBLIC, *, replace: bool = False) -> None:
    """Put the whole content there, synced to disk, or nothing; an existing file is kept unless `replace`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)  # whatever the umask says
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            if replace:
                os.replace(temporary, path)
            else:
                _link(temporary, path)
            sync(path.parent)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder alone, so that two commands at once do not lose each other's changes."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link(temporary: Path, path: Path) -> None:
    """Give the file its name only if the name is free, in one step where the file system has hard links."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(path)) from None
        os.replace(temporary, path)
