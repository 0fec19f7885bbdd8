"""How much time of the loop each identity, neighbour and host has used beyond forwarding.

It counts control messages, questions about topics, and handshakes. Who has used up its allowance goes on in the
background, where all such work together takes a small share of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import structlog

log = structlog.get_logger(__name__)

Holder: TypeAlias = tuple[str, str]  # ("client", "meter-7"), ("node", "n3") or ("host", "192.0.2.4")

BURST_NS = {  # that is done at once, however busy the node is
    "client": 200_000_000,  # some 10,000 requests
    "node": 100_000_000,  # some 1,000 statements about the mesh
    "host": 100_000_000,  # some 150 handshakes
}
REPAID = 0.001  # of the time that passes: with the share of the background below one percent together
PRUNE_AT = 2_048  # accounts before those that owe least are forgotten
SHOWN = 100  # accounts in the metrics: those that used most


@dataclass(slots=True)
class _Account:
    used_ns: float = 0.0
    at_ns: int = 0
    total_ns: int = 0  # ever
    exceeded: int = 0  # times that the allowance was used up
    over: bool = False


class Accounts:
    """One account for each holder."""

    def __init__(self) -> None:
        self._accounts: dict[Holder, _Account] = {}

    def charge(self, holder: Holder, took_ns: int, now_ns: int) -> bool:
        """Count time that was used; True if that is more than is done at once."""
        account = self._accounts.get(holder)
        if account is None:
            if len(self._accounts) >= PRUNE_AT:
                self._prune(now_ns)
            account = self._accounts[holder] = _Account(at_ns=now_ns)
        _repay(account, now_ns, BURST_NS[holder[0]])
        account.used_ns += took_ns
        account.total_ns += took_ns
        if not account.over and account.used_ns > BURST_NS[holder[0]]:
            account.over = True
            account.exceeded += 1
            log.warning(
                "it uses more than its share of the loop and goes on in the background", kind=holder[0], who=holder[1],
                used_ms=round(account.used_ns / 1e6),
            )  # fmt: skip
        return account.over

    def credit(self, holder: Holder, took_ns: int) -> None:
        """Give back what another one pays."""
        account = self._accounts.get(holder)
        if account is not None:
            account.used_ns = max(0.0, account.used_ns - took_ns)
            account.total_ns -= took_ns

    def overdrawn(self, holder: Holder, now_ns: int) -> bool:
        """Whether it has used up what is done at once; until a tenth of that is there again."""
        account = self._accounts.get(holder)
        if account is None:
            return False
        _repay(account, now_ns, BURST_NS[holder[0]])
        return account.over

    def shown(self) -> dict[Holder, tuple[float, int]]:
        """Seconds used and times exceeded, of those that used most."""
        most = sorted(self._accounts.items(), key=lambda item: -item[1].total_ns)[:SHOWN]
        return {holder: (account.total_ns / 1e9, account.exceeded) for holder, account in most}

    def _prune(self, now_ns: int) -> None:
        """Keep the half that owes most: the others have nearly all of their allowance again."""
        for holder, account in self._accounts.items():
            _repay(account, now_ns, BURST_NS[holder[0]])
        owing = sorted(self._accounts.items(), key=lambda item: item[1].used_ns)
        self._accounts = {holder: account for holder, account in owing[len(owing) // 2 :] if account.used_ns}


def _repay(account: _Account, now_ns: int, burst_ns: int) -> None:
    """Give back for the time that passed; it is no longer overdrawn when a tenth of its allowance is there again."""
    account.used_ns = max(0.0, account.used_ns - (now_ns - account.at_ns) * REPAID)
    account.at_ns = now_ns
    account.over = account.over and account.used_ns > 0.9 * burst_ns
