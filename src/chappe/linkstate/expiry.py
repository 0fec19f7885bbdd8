"""Statements that count no more: their lifetime is over, or who signed them is not believed any more."""

from __future__ import annotations

from collections.abc import Callable

from chappe.linkstate.acceptance import Acceptance
from chappe.linkstate.choices import NEVER
from chappe.linkstate.current_map import CurrentMap
from chappe.linkstate.database import Database
from chappe.linkstate.exchange import Exchange
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.origination import Originator
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address
from chappe.wire.mesh import Key

Believe = Callable[[str, bytes], bool]  # whether who signed is still believed: name, signature


class Expiry:
    """Takes statements out of the database, and out of all that was made of them."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, clock: MeshClock, originator: Originator,
        exchange: Exchange, current: CurrentMap, acceptance: Acceptance,
    ) -> None:  # fmt: skip
        self.next_ns = NEVER
        self._me = me
        self._settings = settings
        self._database = database
        self._clock = clock
        self._originator = originator
        self._exchange = exchange
        self._current = current
        self._acceptance = acceptance

    def stored(self, age_ns: int, now_ns: int) -> None:
        """A statement of that age has come."""
        self.next_ns = min(self.next_ns, now_ns + self._settings.lifetime_ns - age_ns)

    def tick(self, now_ns: int) -> None:
        """Forget what is too old."""
        if now_ns < self.next_ns:
            return
        lifetime_ns = self._settings.lifetime_ns
        self._drop(self._database.forget(now_ns, self._originator.keys()))
        self._acceptance.forget(now_ns - lifetime_ns)
        oldest = min((entry.born_ns for entry in self._database.entries.values()), default=NEVER)
        self.next_ns = max(oldest + lifetime_ns, now_ns + lifetime_ns // 100)

    def revalidate(self, believed: Believe) -> None:
        """Drop what was signed by those who are not believed any more: other authorities, or revoked certificates."""
        withdrawn = [
            key for key, entry in self._database.entries.items()
            if key[3] != self._me.node and not believed(key[3], entry.statement.signature)
        ]  # fmt: skip
        for key in withdrawn:
            self._database.drop(key)
        if withdrawn:
            self._current.hurry()
        self._drop(withdrawn)

    def _drop(self, withdrawn: list[Key]) -> None:
        self._clock.forget({key[3] for key in withdrawn if not self._database.originates(key[3])})
        if withdrawn:
            self._exchange.dropped()
            self._current.drop(withdrawn)
