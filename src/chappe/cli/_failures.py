"""How a command ends: its exit code, and a user's error as one message without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from chappe.errors import ChappeError, ConfigError, LinkError, RefusedError, UnknownError, VersionError

DONE = 0
FAILED = 1  # it was tried and failed: no answer in time, nothing of that name, something lost
USAGE = 2  # the command line or the configuration is wrong; nothing was tried
UNREACHABLE = 3  # no node at that address, or the connection was lost
REFUSED = 4  # the node said no: identity, access rule, limit, version
INTERRUPTED = 130  # Ctrl-C before a command had done what it was for


@contextmanager
def failures() -> Iterator[None]:
    """Turn an expected error of a command that works on files into its text on stderr and exit code 1."""
    try:
        yield
    except (ChappeError, OSError) as error:
        say_error(error)
        raise typer.Exit(FAILED) from None


def exit_code(error: BaseException) -> int:
    """The exit code that says what kind of failure it was."""
    match error:
        case ConfigError():
            return USAGE
        case UnknownError():
            return FAILED
        case RefusedError() | VersionError():
            return REFUSED
        case LinkError():
            return UNREACHABLE
    return FAILED


def say_error(error: BaseException | str) -> None:
    """One message on stderr; plain text: a file name in brackets is not markup."""
    Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False, highlight=False)


def say(text: str) -> None:
    """A line for a person, on stderr: stdout is for what was asked for."""
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)
