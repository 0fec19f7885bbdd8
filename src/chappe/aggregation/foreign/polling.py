"""Reading the results of other systems again and again, from files or by HTTP."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from chappe.aggregation.foreign import prometheus, pscheduler
from chappe.aggregation.foreign.mapping import Foreign
from chappe.measure.record import Record, Refused

log = structlog.get_logger(__name__)
FETCH_S = 10.0
FETCH_BYTES = 16 << 20


async def poll(foreign: Foreign, realm: str, take: Callable[[Sequence[Record]], Awaitable[None]]) -> None:
    """Hand over what a system has measured, as records of this realm, every `every_s` seconds, until cancelled.

    Most of it was there before: repeats are known by their time when they are stored, and dropped.
    """
    while True:
        try:
            text = await asyncio.to_thread(_fetch, foreign.place)
            records, refused = translate_results(foreign, text, time.time_ns())
        except (OSError, ValueError) as error:
            log.warning("a foreign system cannot be read", place=foreign.place, reason=str(error))
        else:
            for line, reason in refused[:3]:
                log.warning("a foreign result is refused", place=foreign.place, line=line, reason=reason)
            await take([msgspec.structs.replace(each, realm=realm) for each in records])
        await asyncio.sleep(foreign.every_s)


def translate_results(foreign: Foreign, text: bytes, now_ns: int) -> tuple[list[Record], list[Refused]]:
    """The records of a text of another system."""
    if foreign.kind == "pscheduler":
        return pscheduler.read(text, foreign.link)
    return prometheus.read(text.decode(), foreign.link, foreign.metric, now_ns)


def _fetch(place: str) -> bytes:
    if not place.startswith(("http://", "https://")):
        with Path(place).open("rb") as file:
            return file.read(FETCH_BYTES)
    with urllib.request.urlopen(place, timeout=FETCH_S) as answer:
        text: bytes = answer.read(FETCH_BYTES)
        return text
