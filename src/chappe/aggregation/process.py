"""The aggregator as a process: a client of a node that stores what it hears in a thread of its own (MR-081, MR-084)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chappe import attached
from chappe.aggregation.config import Config, load
from chappe.aggregation.role import Role
from chappe.attached import WAIT_S, Connect


def main(arguments: Sequence[str], connect: Connect) -> int:
    """Run the aggregator of a file until SIGTERM or SIGINT; the exit code."""
    return attached.exit_code("chappe.aggregation", arguments, lambda path: run(path, connect))


def run(path: str | Path, connect: Connect) -> int:
    """The same, with errors raised: ConfigError and StoreError before anything is connected."""
    config = load(path)
    return attached.run(lambda: Role(config), partial(_connected, config, connect))


async def _connected(config: Config, connect: Connect, role: Role, over: asyncio.Event) -> None:
    of = config.aggregates
    async with connect(of.urls, name=of.name, wait_s=WAIT_S, **of.access("aggregates")) as client:
        await role.subscribe(client)
        print("serving", flush=True)
        await role.serve(client, over)
