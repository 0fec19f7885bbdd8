"""An own PostgreSQL server for tests: on a free port, in a temporary folder, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.nodes import free_port

SETTINGS = ("fsync=off", "shared_buffers=16MB", "max_connections=40", "listen_addresses=127.0.0.1", "jit=off")


def _folder() -> Path:
    """Where the programs of the server are; skips the test with the line that installs them."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: -float(path.parts[-3]))
    found = str(homes[0]) if homes else shutil.which("initdb")
    if found is None:
        pytest.skip("postgresql is missing: sudo apt install postgresql")
    return Path(found).parent


def _account() -> pwd.struct_passwd | None:
    """Who runs it: the server refuses to run as root."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


class Postgres:
    """A server whose only user is `chappe`, which has no password."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.port = free_port()
        self._programs = programs
        self._home = home

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://chappe@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        self._run("initdb", "-D", str(self._home / "data"), "-U", "chappe", "-A", "trust", "-E", "UTF8", "-N")

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = " ".join(f"-c {setting}" for setting in SETTINGS)
        options = f"-k {self._home} -p {self.port} {settings}"
        self._run("pg_ctl", "-w", "-D", str(self._home / "data"), "-l", str(self._home / "log"), "-o", options, "start")

    def stop(self) -> None:
        """End it: connections break at once, what was committed stays."""
        self._run("pg_ctl", "-w", "-m", "fast", "-D", str(self._home / "data"), "stop")

    def run(self, statement: str) -> None:
        """Carry out a statement of an administrator."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: str) -> None:
        account = _account()
        with tempfile.TemporaryFile("w+") as said:  # not a pipe: the server would keep it open
            done = subprocess.run(
                [self._programs / program, *arguments], stdout=said, stderr=said, stdin=subprocess.DEVNULL, check=False,
                cwd=self._home, user=account and account.pw_uid, group=account and account.pw_gid,
            )  # fmt: skip
            said.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed:\n{said.read()}")


@contextlib.contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A running server, or a skip that says how to install one."""
    programs = _folder()
    with tempfile.TemporaryDirectory(prefix="chappe-pg-", ignore_cleanup_errors=True) as folder:
        account = _account()
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        server = Postgres(programs, Path(folder))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
