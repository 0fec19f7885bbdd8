"""Variables that reach a client without being watched: a mode floods them to everybody who asked for them (GS-051)."""

from __future__ import annotations

import asyncio

from chappe.client._core import ClientCore
from chappe.client._status import StatusStream, Watch
from chappe.client.node_requests import NodeRequests
from chappe.client.structs import decoder_of
from chappe.errors import ChappeError
from chappe.wire.control import List

LISTED = 5000  # variables whose names are asked for


class Floods:
    """The stream of flooded variables; the node is asked for their names when they come for the first time.

    Values wait in the stream until the answer is there. A variable that the node does not list keeps `#number` as its
    name and its values are bytes.
    """

    def __init__(self, core: ClientCore, node: NodeRequests) -> None:
        self.stream: StatusStream | None = None
        self._core = core
        self._node = node
        self._new: list[Watch] = []
        self._naming: asyncio.Task[None] | None = None

    def open(self, owner: object, max_queue: int) -> StatusStream:
        """The one stream of this client."""
        if self.stream is None:
            self.stream = StatusStream(max_queue=max_queue)
            self.stream.owner = owner
            self.stream.loop = asyncio.get_running_loop()
            self._core.on_unnamed = self._ask_names
            self._core.flood = self.stream
        return self.stream

    def close(self) -> None:
        """Values of variables that are not watched are dropped from now on."""
        self._core.flood = None
        self.stream = None

    def connection_lost(self) -> None:
        """The numbers of another connection may mean something else."""
        self._core.floods.clear()

    def _ask_names(self, watches: list[Watch]) -> None:
        self._new += watches
        if self._naming is None:
            self._naming = asyncio.get_running_loop().create_task(self._name())

    async def _name(self) -> None:
        try:
            while self._new:
                watches, self._new = self._new, []
                try:
                    rows = await self._node.list(List(id=0, what="variables", limit=LISTED))
                    known = {row["id"]: row for row in rows}
                    for watch in watches:
                        row = known.get(watch.variable_id)
                        if row is not None:
                            watch.named(row["publisher"], row["variable"], row["type"])
                            watch.decoder = decoder_of(row["type"])
                except (ChappeError, ValueError):
                    pass  # the values are worth more than the names
                finally:
                    watches[0].stream.names_known(len(watches))
        finally:
            self._naming = None

    async def cancel(self) -> None:
        """Ask no more."""
        if self._naming is not None:
            self._naming.cancel()
            await asyncio.gather(self._naming, return_exceptions=True)
