"""How a command ends: 0 done, 1 the operation failed, 2 bad usage; a user's error is a message, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from chappe.errors import ChappeError


@contextmanager
def failures() -> Iterator[None]:
    """Turn an expected error into its text on stderr and exit code 1."""
    try:
        yield
    except (ChappeError, OSError) as error:
        # Plain text: a file name in brackets is not markup.
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False, highlight=False)
        raise typer.Exit(1) from None
