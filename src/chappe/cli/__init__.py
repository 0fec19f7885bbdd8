"""The command line: `chappe …`; each command loads only what it needs."""

from __future__ import annotations


def main() -> None:
    """The entry point of the `chappe` command."""
    from chappe.cli.app import run

    run()
