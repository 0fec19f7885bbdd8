"""A request to the node from its beginning to its end: wait for a connection, ask, wait for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chappe.client.owner import Owner
from chappe.client.requests import AnyAnswer, Requests, within
from chappe.errors import LinkError
from chappe.wire import control


class Exchange:
    """Asks the node as soon as the client is connected; `up` is set while it is and has again what it had."""

    def __init__(self, owner: Owner, requests: Requests) -> None:
        self.up = asyncio.Event()
        self._owner = owner
        self._requests = requests

    async def ask(
        self,
        make: Callable[[int], control.Request | control.Command],
        kind: type[AnyAnswer],
        what: str,
        patience_s: float = 0.0,
    ) -> AnyAnswer:
        """The answer to `make(id)`; TimeoutExpired names `what` was asked for."""
        await self.connected()
        return await within(self._requests.ask(make, kind), max(self._owner.timeout_s, patience_s), what)

    async def connected(self) -> None:
        """Wait for a connection; LinkError if there is none for too long."""
        self.check_open()
        if not self.up.is_set():
            try:
                async with asyncio.timeout(self._owner.timeout_s):
                    await self.up.wait()
            except TimeoutError:
                raise LinkError(f"not connected for {self._owner.timeout_s:g} s ({self._owner.state})") from None

    def check_open(self) -> None:
        """LinkError if the client was closed."""
        if self._owner.state == "closed":
            raise LinkError("the client is closed: connect again")
