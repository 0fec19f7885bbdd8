"""How much time of the loop the control messages of each identity have used."""

from __future__ import annotations

from dataclasses import dataclass

BURST_NS = 200_000_000  # handled at once, however busy the node is: some 10,000 requests
REPAID = 0.05  # of the time that passes
PRUNE_AT = 4_096  # accounts before those that are repaid are forgotten


@dataclass(slots=True)
class _Account:
    used_ns: float = 0.0
    at_ns: int = 0


class Accounts:
    """One account an identity, whatever the number of its connections."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def charge(self, name: str, took_ns: int, now_ns: int) -> bool:
        """Note that handling its messages took so long; True if that is more than is done at once."""
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= PRUNE_AT:
                self._prune(now_ns)
            account = self._accounts[name] = _Account(at_ns=now_ns)
        account.used_ns = max(0.0, account.used_ns - (now_ns - account.at_ns) * REPAID) + took_ns
        account.at_ns = now_ns
        return account.used_ns > BURST_NS

    def _prune(self, now_ns: int) -> None:
        for name, account in list(self._accounts.items()):
            if account.used_ns <= (now_ns - account.at_ns) * REPAID:
                del self._accounts[name]
