"""What the parts of a client know of the client that they belong to."""

from __future__ import annotations

from typing import Protocol

from chappe.client._inbox import Subscription
from chappe.client._status import StatusStream


class Owner(Protocol):
    """The client: what it was told when it was made, how its connection is, and what it does for its parts."""

    name: str
    timeout_s: float
    durable_s: float

    @property
    def state(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def issuer(self) -> bytes: ...
    @property
    def reconnections(self) -> int: ...
    @property
    def mode(self) -> int: ...
    @property
    def is_cell(self) -> bool:
        """Whether the node has names for its clients."""

    @property
    def finds(self) -> bool:
        """Whether the node finds variables by pattern."""

    def subscription_has_room(self, queue: Subscription | StatusStream) -> None:
        """A queue that was full has been read from."""

    def report(self, error: Exception) -> None:
        """Hand over an error that no call of the application waits for."""

    async def drain(self) -> None:
        """Wait until what was published has left."""
