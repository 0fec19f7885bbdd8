"""The aggregator as a process: a client of a node that stores what it hears in a thread of its own (MR-081, MR-084)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chappe.aggregation.config import Config, load
from chappe.aggregation.role import Role
from chappe.client.process import WAIT_S, exit_code, run_role


def main(arguments: Sequence[str]) -> int:
    """Run the aggregator of a file until SIGTERM or SIGINT; the exit code."""
    return exit_code("chappe.aggregation", arguments, run)


def run(path: str | Path) -> int:
    """The same, with errors raised: ConfigError and StoreError before anything is connected."""
    config = load(path)
    return run_role(lambda: Role(config), partial(_connected, config))


async def _connected(config: Config, role: Role, over: asyncio.Event) -> None:
    of = config.aggregates
    async with of.connect("aggregates", of.name, wait_s=WAIT_S) as client:
        await role.subscribe(client)
        print("serving", flush=True)
        await role.serve(client, over)
