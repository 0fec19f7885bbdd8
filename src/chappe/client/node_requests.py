"""What a client asks its node, or a broker, to do: measure, open links, condense, carry commands out, list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chappe.client.exchange import Exchange
from chappe.wire import control
from chappe.wire.management import Condense, Function, Issued, Uncondense
from chappe.wire.mesh import Pace

OPEN_LINK_S = 30.0  # a node dials, and waits 5 s for the other end
MEASURE_S = 6.0  # a node waits 5 s for the other end of a link


class NodeRequests:
    """Requests that leave nothing at the client: their answer is all."""

    def __init__(self, exchange: Exchange, send_control: Callable[[bytes], None]) -> None:
        self._exchange = exchange
        self._send_control = send_control

    async def condense(self, function: Function) -> int:
        """The number of the variable that the function publishes."""
        named = f"condense {function.publisher}/{function.variable}"
        issued = await self._exchange.ask(lambda request: Condense(id=request, function=function), Issued, named)
        return issued.variable_id

    async def uncondense(self, publisher: str, variable: str) -> None:
        """Remove a function."""
        await self._exchange.ask(
            lambda request: Uncondense(id=request, publisher=publisher, variable=variable),
            control.Done,
            f"uncondense {publisher}/{variable}",
        )

    async def measure(self, link: str, every: float | None, usual: bool, far: bool) -> list[dict[str, Any]]:
        """What the node found of a link, or of all; `every` and `usual` say how often it measures from now on."""
        if usual and every is not None:
            raise ValueError("give `every` or `usual`, not both")
        every_ns = -1 if usual else None if every is None else round(every * 1e9)
        answer = await self._exchange.ask(
            lambda request: control.Measure(id=request, of=link, every_ns=every_ns, far=far), control.Listing,
            f"measure {link or 'all links'}", patience_s=MEASURE_S,
        )  # fmt: skip
        return list(answer.rows)

    async def open_link(self, peer: str, kind: str, data: str, lifetime_s: float) -> dict[str, Any]:
        """The row of another link to a node."""
        answer = await self._exchange.ask(
            lambda request: control.OpenLink(
                id=request, to=peer, kind=kind, data=data, lifetime_ns=round(lifetime_s * 1e9)
            ),
            control.Listing, f"open a link to {peer}", patience_s=OPEN_LINK_S,
        )  # fmt: skip
        return answer.rows[0]

    async def set_pace(self, every: float | None) -> None:
        """Be probed every so many seconds at most; None: as the node likes."""
        await self._exchange.connected()
        self._send_control(control.encode(Pace(interval_ns=-1 if every is None else round(every * 1e9))))

    async def command(self, command: control.Command) -> None:
        """Carry a command of brokers out."""
        await self._exchange.ask(
            lambda request: msgspec.structs.replace(command, id=request), control.Done, type(command).__name__
        )

    async def operate(self, request: control.Request) -> control.Answer:
        """The answer of a broker to what operators ask."""
        return await self._exchange.ask(
            lambda number: msgspec.structs.replace(request, id=number), control.Answer, type(request).__name__
        )

    async def check_right(self, action: str, address: str) -> None:
        """DeniedError, with the rule that is missing, unless this client may do that at an address or in a pattern."""
        await self._exchange.ask(
            lambda request: control.Check(id=request, action=action, address=address),
            control.Done,
            f"check {action} {address!r}",
        )

    async def list(self, listing: control.List) -> list[dict[str, Any]]:
        """All rows of a listing, in as many requests as it takes."""
        rows: list[dict[str, Any]] = []
        while True:
            rest = msgspec.structs.replace(listing, limit=listing.limit - len(rows), start=len(rows))
            answer = await self._exchange.ask(_with_id(rest), control.Listing, f"list {listing.what}")
            rows += answer.rows
            if not answer.rows or len(rows) >= min(listing.limit, answer.total):
                return rows


def _with_id(request: control.List) -> Callable[[int], control.List]:
    """The same request under the number that it gets."""
    return lambda number: msgspec.structs.replace(request, id=number)
