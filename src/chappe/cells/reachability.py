"""Which cells can be connected to, as far as attempts have shown (BF-07)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chappe.cells.settings import CellSettings
from chappe.machine import NEVER


@dataclass(slots=True)
class _Attempt:
    until_ns: int  # it is given up
    shunned_ns: int = 0  # and not tried again before
    rest_ns: int = 0  # how long that is


class Reachability:
    """A cell that does not answer is not tried for a while, each time twice as long; an answer forgets all that."""

    def __init__(self, settings: CellSettings) -> None:
        self._settings = settings
        self._attempts: dict[bytes, _Attempt] = {}

    def __bool__(self) -> bool:
        """Whether any cell is tried, or is not to be."""
        return bool(self._attempts)

    def permits(self, id: bytes, now_ns: int) -> bool:
        """Whether it may be tried, or is being tried."""
        attempt = self._attempts.get(id)
        return attempt is None or now_ns >= attempt.shunned_ns

    def dialled(self, id: bytes, now_ns: int) -> None:
        """An attempt begins."""
        attempt = self._attempts.setdefault(id, _Attempt(0))
        attempt.until_ns = now_ns + self._settings.patience_ns

    def connected(self, id: bytes) -> None:
        """It can be reached."""
        self._attempts.pop(id, None)

    def forget(self, id: bytes) -> None:
        """It has failed, or has other addresses."""
        self._attempts.pop(id, None)

    def given_up(self, dialled: Collection[bytes], now_ns: int) -> list[bytes]:
        """Those of the cells that are dialled which have not answered in time: shunned from now on."""
        settings, late = self._settings, []
        for id in dialled:
            attempt = self._attempts.get(id)
            if attempt is not None and now_ns >= attempt.until_ns and now_ns >= attempt.shunned_ns:
                attempt.rest_ns = min(2 * attempt.rest_ns or settings.shunned_ns, settings.longest_shunned_ns)
                attempt.shunned_ns = now_ns + attempt.rest_ns
                late.append(id)
        return sorted(late)

    def next_ns(self, dialled: Collection[bytes]) -> int:
        """When the next of them is given up, unless it answers."""
        attempts = (self._attempts.get(id) for id in dialled)
        return min((each.until_ns for each in attempts if each is not None), default=NEVER)
