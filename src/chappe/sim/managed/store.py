"""The store of a role, modelled: one lease, epochs that fence commits, and time that a commit takes."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.errors import StaleEpochError, StoreError
from chappe.machine import Change


class RoleStore:
    """What all processes of a role share. While it is `away` every call fails, as a database that is not reached."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.epoch = 0
        self.away = False
        self.commits = 0
        self._holder = ""
        self._until_ns = 0
        self.items: dict[tuple[str, str], bytes] = {}

    def acquire(self, holder: str, now_ns: int, lease_ns: int) -> int | None:
        """The lease under a new epoch, if nobody has it."""
        self._reach()
        if self._holder and now_ns < self._until_ns:
            return None
        self.epoch += 1
        self._holder, self._until_ns = holder, now_ns + lease_ns
        return self.epoch

    def renew(self, holder: str, epoch: int, now_ns: int, lease_ns: int) -> bool:
        """False: another process has it."""
        self._reach()
        if (holder, epoch) != (self._holder, self.epoch):
            return False
        self._until_ns = now_ns + lease_ns
        return True

    def give_up(self, holder: str, epoch: int) -> None:
        if (holder, epoch) == (self._holder, self.epoch):
            self._holder = ""

    def commit(self, epoch: int, changes: Iterable[Change]) -> None:
        """All of them, or StaleEpochError if another epoch has begun."""
        self._reach()
        if epoch != self.epoch:
            raise StaleEpochError(self.role, epoch)
        self.commits += 1
        for change in changes:
            if change.value is None:
                self.items.pop((change.kind, change.key), None)
            else:
                self.items[change.kind, change.key] = change.value

    def load(self) -> list[Change]:
        """Everything, as it was last committed."""
        self._reach()
        return [Change(kind, key, value) for (kind, key), value in sorted(self.items.items())]

    def count(self, kind: str) -> int:
        """Items of a kind."""
        return sum(1 for each, _ in self.items if each == kind)

    def _reach(self) -> None:
        if self.away:
            raise StoreError(f"the store of {self.role} is away")
