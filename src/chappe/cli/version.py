"""`chappe version`."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

EXAMPLES = ("chappe version", "chappe version --json")


def version(as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object.")] = False) -> None:
    """Print the versions of Chappe, its wire format and Python."""
    from chappe import __version__
    from chappe.wire.control import MAJOR, MINOR

    versions = {"chappe": __version__, "wire": f"{MAJOR}.{MINOR}", "python": platform.python_version()}
    if as_json:
        typer.echo(json.dumps(versions))
        return
    for name, number in versions.items():
        typer.echo(f"{name} {number}")
