"""What can go wrong, in one small hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ChappeError(Exception):
    """Base of all errors of this package; its text says what was wrong, where, and what to do."""


class ConfigError(ChappeError):
    """A configuration file or option is wrong: names file, key and reason."""


class ProtocolError(ChappeError):
    """The other side sent bytes that break the wire contract; its connection is closed."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class VersionError(ProtocolError):
    """The other side speaks another major version."""


class RefusedError(ChappeError):
    """The node refused a connection or request; the reason says which rule or limit, the code which kind."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


class DeniedError(RefusedError):
    """An access rule is missing: names the action, the address and the rule that would allow it."""


class UnknownError(RefusedError):
    """The node does not know the variable or subscription that was named."""


class QosError(RefusedError):
    """No path gives the quality that was asked for; `best` is what could be granted, by mode (GS-042)."""

    def __init__(self, reason: str, best: Mapping[int, Any] | None = None) -> None:
        super().__init__(reason)
        self.best: Mapping[int, Any] = dict(best or {})


class WithdrawnError(ChappeError):
    """A watched variable is published no more: names it and says why (GS-053)."""


class LinkError(ChappeError):
    """A connection could not be made or was lost."""


class UnreachableError(LinkError):
    """No path leads to the cell that has a name, or nobody answers there."""


class QueueFullError(ChappeError):
    """A bounded queue has no room."""


class TimeoutExpired(ChappeError):
    """An answer did not arrive in time."""


class UnconfirmedError(TimeoutExpired):
    """A durable event was published, and nobody knows whether an archive has stored it; subscribers may have it.

    Publishing it again would deliver it twice: `client.confirm_again(error)` sends it to archives alone.
    """

    def __init__(self, reason: str, event: Any = None) -> None:
        super().__init__(reason)
        self.event = event


class StoreError(ChappeError):
    """The durable store cannot be opened, read or written; nothing was changed."""


class StaleEpochError(StoreError):
    """Another process has become the active one of this role: nothing of an older epoch is committed any more."""

    def __init__(self, role: str, epoch: int) -> None:
        super().__init__(f"epoch {epoch} of {role} is over; another process leads")
