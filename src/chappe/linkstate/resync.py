"""What neighbours have and this node lacks: each vertex is asked for at one of them, and at another if it is silent."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import Settings
from chappe.wire.mesh import Key

Asked = dict[str, list[Key]]


class Resync:
    """A node that starts meets its neighbours all at once; without this each would send it the whole map."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.next_ns = NEVER
        self._offers: dict[Key, dict[str, int]] = {}  # who has it, with which sequence
        self._asked: dict[Key, tuple[str, int, int]] = {}  # whom, for which sequence, until when it may answer

    @property
    def busy(self) -> bool:
        """Whether something that was asked for has not come."""
        return bool(self._asked)

    def offer(self, peer: str, offered: Iterable[tuple[Key, int]], now_ns: int) -> list[Key]:
        """A neighbour has these; those that it is asked for."""
        ask = []
        for key, sequence in offered:
            if key not in self._offers and len(self._offers) >= self.settings.max_adverts:
                break
            self._offers.setdefault(key, {})[peer] = sequence
            asked = self._asked.get(key)
            if asked is None or asked[1] < sequence:
                self._ask(peer, key, sequence, now_ns)
                ask.append(key)
        return ask

    def has(self, key: Key, sequence: int) -> None:
        """This node has it now."""
        offers = self._offers.get(key)
        if offers is None:
            return
        for peer in [peer for peer, offered in offers.items() if offered <= sequence]:
            del offers[peer]
        if not offers:
            del self._offers[key]
            self._asked.pop(key, None)

    def lost(self, peer: str, now_ns: int) -> Asked:
        """That neighbour is gone; whom to ask instead."""
        for key in [key for key, offers in self._offers.items() if peer in offers]:
            offers = self._offers[key]
            del offers[peer]
            if not offers:
                del self._offers[key]
                self._asked.pop(key, None)
        return self._again([key for key, asked in self._asked.items() if asked[0] == peer], now_ns)

    def late(self, now_ns: int) -> Asked:
        """Whom to ask instead of those who did not answer."""
        if now_ns < self.next_ns:
            return {}
        late = [key for key, asked in self._asked.items() if asked[2] <= now_ns]
        self.next_ns = min((asked[2] for asked in self._asked.values() if asked[2] > now_ns), default=NEVER)
        return self._again(late, now_ns)

    def _again(self, keys: list[Key], now_ns: int) -> Asked:
        """Ask the next one; who stands alone with what it has, and did not send it, is believed no more."""
        found: Asked = {}
        for key in keys:
            silent = self._asked.pop(key)[0]
            offers = self._offers[key]
            offers.pop(silent, None)
            if not offers:
                del self._offers[key]
                continue
            peer, sequence = max(offers.items(), key=lambda offer: (offer[1], offer[0]))
            self._ask(peer, key, sequence, now_ns)
            found.setdefault(peer, []).append(key)
        return found

    def _ask(self, peer: str, key: Key, sequence: int, now_ns: int) -> None:
        until_ns = now_ns + self.settings.answer_ns
        self._asked[key] = peer, sequence, until_ns
        self.next_ns = min(self.next_ns, until_ns)
