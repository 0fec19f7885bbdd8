"""The node that a command talks to: its address and credentials as options, and how a command runs against it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from chappe.cli._failures import DONE, INTERRUPTED, USAGE, exit_code, say, say_error
from chappe.errors import ChappeError, ConfigError

if TYPE_CHECKING:
    from chappe.client.connecting import Connecting

DEFAULT_URL = "tcp://127.0.0.1:7400"
PANEL = "The node"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a node is and who asks."""

    url: Annotated[
        str,
        typer.Option("--url", envvar="CHAPPE_URL", help="Address; several with commas.", rich_help_panel=PANEL),
    ] = DEFAULT_URL
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="CHAPPE_TOKEN", help="Signed token.", rich_help_panel=PANEL, show_default=False),
    ] = None
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with a signed token.", rich_help_panel=PANEL)
    ] = None
    ca: Annotated[
        Path | None, typer.Option("--ca", help="Certificate of the authority, for tls://.", rich_help_panel=PANEL)
    ] = None
    cert: Annotated[Path | None, typer.Option("--cert", help="Own certificate.", rich_help_panel=PANEL)] = None
    key: Annotated[Path | None, typer.Option("--key", help="Key of --cert.", rich_help_panel=PANEL)] = None
    proxy: Annotated[
        str,
        typer.Option(
            "--proxy", envvar="CHAPPE_PROXY", rich_help_panel=PANEL, show_default=False,
            help="http://user:password@host:port, or `environment` for https_proxy.",
        ),
    ] = ""  # fmt: skip

    def connect(self, command: str, **options: Any) -> Connecting:
        """A client of that node; ConfigError if the options do not fit each other."""
        import chappe

        return chappe.connect(
            self.url.split(","), name=f"{command}-{os.getpid()}", token=self.secret(), tls=self.tls(),
            proxy=self.proxy, **options,
        )  # fmt: skip

    def secret(self) -> str | None:
        """The token, from wherever it was given."""
        if self.token_file is None:
            return self.token or None
        if self.token:
            raise ConfigError("give --token or --token-file, not both")
        try:
            return self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {self.token_file}: cannot be read: {error}") from None

    def tls(self) -> Any:
        """What `chappe.connect` takes as `tls`."""
        if (self.cert is None) is not (self.key is None):
            raise ConfigError("--cert and --key belong together")
        if self.ca is None:
            if self.cert is not None:
                raise ConfigError("--cert needs --ca, the certificate of the authority")
            return None
        return (str(self.ca), str(self.cert), str(self.key)) if self.cert is not None else self.ca


def targeted(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its first parameter: a Target, or what one is made of."""
    hints = get_type_hints(function, include_extras=True)
    first, *own = inspect.signature(function).parameters.values()
    kind = hints[first.name]
    types = get_type_hints(kind, include_extras=True)
    common = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(kind)
    ]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        target = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(target, **given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name]) for each in own]
    command.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*parameters, *common)}
    del command.__dict__["__wrapped__"]  # typer would read the annotations of the wrapped function
    return command


def run(job: Coroutine[Any, Any, int | None], *, endless: bool = False) -> None:
    """Run the job and exit with its code, or the one of its error; Ctrl-C is the normal end of an `endless` one."""
    import uvloop

    _log_to_stderr()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_until_told(job))
        sys.stdout.flush()
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = DONE if endless else INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except (ChappeError, OSError) as error:
        say_error(error)
        code = exit_code(error)
    except (ValueError, TypeError) as error:  # a topic, name or number that the client does not take
        say_error(error)
        code = USAGE
    raise typer.Exit(code or DONE)


async def _until_told(job: Coroutine[Any, Any, int | None]) -> int | None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await job


def warn_lost(error: Exception | None) -> None:
    """Say that the connection is gone; the client tries again by itself."""
    say(f"connection lost ({error or 'end of stream'}), trying again")


def _log_to_stderr() -> None:
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
