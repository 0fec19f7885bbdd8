"""Processes attached to a node as its clients (aggregators, archives): their file, their access, their life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
import uvloop

from chappe.errors import ChappeError, ConfigError, LinkError

WAIT_S = 30.0  # for the node at the start
Connect = Callable[..., Any]
"""`chappe.connect`: given from outside, because the client lies above the packages that are attached."""

T = TypeVar("T")
AnyTable = TypeVar("AnyTable", bound="Attachment")
AnyRole = TypeVar("AnyRole", bound="Role")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; a key that is not listed is an error."""


class Attachment(Section, frozen=True, kw_only=True):
    """The part of a role's table that says which node it is a client of, and how it proves who it is."""

    url: str | tuple[str, ...] = "tcp://127.0.0.1:7400"
    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def urls(self) -> list[str]:
        return [self.url] if isinstance(self.url, str) else list(self.url)

    def check(self, table: str) -> None:
        """ConfigError if what belongs together is not there together."""
        if bool(self.cert) is not bool(self.key):
            raise ConfigError(f"{table}.cert, {table}.key: belong together")
        if self.cert and not self.ca:
            raise ConfigError(f"{table}.ca: is needed with cert and key")

    def access(self, table: str) -> dict[str, Any]:
        """What `connect` is told about who asks."""
        tls = (self.ca, self.cert, self.key) if self.cert else Path(self.ca) if self.ca else None
        return {"token": _token(self.token_file, table), "tls": tls}


def text_of(path: str | Path) -> str:
    """The text of a configuration; ConfigError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def decoded(text: str, source: str, into: type[T], check: Callable[[T], None]) -> T:
    """A TOML text as a tree that was checked; ConfigError names the source, the key and the reason."""
    try:
        tree = msgspec.toml.decode(text, type=into)
        check(tree)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{source}: {error}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return tree


def resolved(table: AnyTable, base: Path, *keys: str) -> AnyTable:
    """The table with these paths, and those of its access, relative to the folder of its file; URIs stay."""
    changed = {}
    for key in ("token_file", "ca", "cert", "key", *keys):
        text: str = getattr(table, key)
        if text and "://" not in text:
            changed[key] = str(base / text)
    return msgspec.structs.replace(table, **changed)


class Role(Protocol):
    """What lives as long as its process."""

    serving: bool  # it is connected, and ends by itself when it is told to

    async def open(self) -> None:
        """Ready what it writes to, before anything is connected."""

    async def close(self) -> None:
        """Write what is left."""


def exit_code(package: str, arguments: Sequence[str], run: Callable[[str], int]) -> int:
    """The code with which `python -m PACKAGE FILE.toml` ends."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(f"usage: python -m {package} FILE.toml", file=sys.stderr)
        return 2
    try:
        return run(arguments[0])
    except ChappeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, LinkError) else 1


def run(make: Callable[[], AnyRole], connected: Callable[[AnyRole, asyncio.Event], Awaitable[None]]) -> int:
    """Log to standard error and let a role serve until SIGTERM or SIGINT."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(make, connected))
    return 0


async def _serve(make: Callable[[], AnyRole], connected: Callable[[AnyRole, asyncio.Event], Awaitable[None]]) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    role = make()
    try:
        await role.open()
        serving = asyncio.ensure_future(connected(role, over))
        ending = asyncio.ensure_future(over.wait())
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not role.serving and not serving.done():
            serving.cancel()  # it still looks for its node, and was told to end
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await role.close()


async def until(over: asyncio.Event, jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All jobs of a role side by side until it is over; the error of one of them ends all."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    ending = asyncio.ensure_future(over.wait())
    try:
        done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ending}:
            task.result()  # none of them ends by itself
    finally:
        for task in (ending, *tasks):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)


def _token(file: str, table: str) -> Callable[[], str] | None:
    """Read at each connection, so that a token can be renewed."""
    if not file:
        return None

    def token() -> str:
        try:
            return Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{table}.token_file {file}: cannot be read: {error}") from None

    token()
    return token
