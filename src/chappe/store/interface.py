"""What a broker needs of a store: a lease that says who is active, and items that outlive every process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

Item = tuple[str, str, bytes]
"""(kind, key, value)"""

Changed = tuple[str, str, bytes | None]
"""(kind, key, value): a change; no value removes the item"""

VERSION = 1  # of the tables; a store of another version is not touched


class Store(Protocol):
    """Blocking; a store is used by one thread at a time. Everything may raise StoreError, which changes nothing.

    The lease of a role has one holder at a time and expires by the clock of the store. Taking it raises the epoch of
    the role by one, so that an epoch has one holder for ever.
    """

    def acquire(self, role: str, holder: str, lease_s: float) -> int | None:
        """The new epoch; None while another holds the lease."""

    def renew(self, role: str, holder: str, epoch: int, lease_s: float) -> bool:
        """Hold it from now for `lease_s`; False if it was taken or given up."""

    def give_up(self, role: str, holder: str, epoch: int) -> None:
        """Others may take the lease at once; nothing more is committed under this epoch."""

    def load(self, role: str) -> list[Item]:
        """Everything that is committed."""

    def commit(self, role: str, epoch: int, changes: Sequence[Changed]) -> None:
        """All changes or none, on disk when it returns; StaleEpochError once the lease of this epoch is over.

        Repeating it is harmless. Of several changes of one item the last counts.
        """

    def close(self) -> None:
        """Nothing more is asked; what was committed stays."""


def parted(changes: Iterable[Changed]) -> tuple[list[Item], list[tuple[str, str]]]:
    """What is to be written and what is to be removed, each item once."""
    last = {(kind, key): value for kind, key, value in changes}
    written = [(kind, key, value) for (kind, key), value in last.items() if value is not None]
    return written, [name for name, value in last.items() if value is None]
