"""Waiting for what the loop will do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Let the loop run until the condition holds; TimeoutError after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - the condition is in compiled objects that announce nothing
            await asyncio.sleep(0.001)
