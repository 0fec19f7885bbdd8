"""An own PostgreSQL server: on a free port, in a temporary folder, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chappe.errors import ChappeError
from chappe.links.ports import free_ports

SETTINGS = ("fsync=off", "shared_buffers=16MB", "max_connections=40", "listen_addresses=127.0.0.1", "jit=off")


def programs() -> Path:
    """The folder of the server's programs; ChappeError says how to install them."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: -float(path.parts[-3]))
    found = str(homes[0]) if homes else shutil.which("initdb")
    if found is None:
        raise ChappeError("postgresql is missing: sudo apt install postgresql")
    return Path(found).parent


def _account() -> pwd.struct_passwd | None:
    """Who runs it: the server refuses to run as root."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


class Postgres:
    """A server whose only user is `chappe`, which has no password."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.port = free_ports(1)[0]
        self._programs = folder
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

    def _run(self, program: str, *arguments: str) -> None:
        account = _account()
        with tempfile.TemporaryFile("w+") as said:  # not a pipe: the server would keep it open
            done = subprocess.run(
                [self._programs / program, *arguments], stdout=said, stderr=said, stdin=subprocess.DEVNULL, check=False,
                cwd=self._home, user=account and account.pw_uid, group=account and account.pw_gid,
            )  # fmt: skip
            said.seek(0)
            if done.returncode:
                raise ChappeError(f"{program} failed: {said.read()}")


@contextlib.contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A running server."""
    folder = programs()
    with tempfile.TemporaryDirectory(prefix="chappe-pg-", ignore_cleanup_errors=True) as home:
        account = _account()
        if account is not None:
            os.chown(home, account.pw_uid, account.pw_gid)
        server = Postgres(folder, Path(home))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
