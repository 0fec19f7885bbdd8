"""`chappe bench`: the benches of a checkout; they are not part of the installed package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def missing(context: typer.Context) -> None:
    """Measure Chappe beside its peers (from a checkout)."""
    typer.echo("chappe bench needs a checkout of Chappe: clone it, `make build`, run its .venv/bin/chappe", err=True)
    raise typer.Exit(2)


def _found() -> typer.Typer | Callable[..., Any]:
    if find_spec("bench") is None or find_spec("bench.app") is None:
        return missing
    loaded: typer.Typer = import_module("bench.app").app
    return loaded


app = _found()
