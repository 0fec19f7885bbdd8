"""Advertisements on their way to neighbours: what came together goes together, and to nobody who has it already."""

from __future__ import annotations

import random
from collections.abc import Iterable

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import Settings
from chappe.wire.mesh import Key

_Waiting = dict[str, dict[Key, int]]  # by neighbour: keys, and the sequence it is to hear


class Flooding:
    """What is to be passed on, and when.

    The first news after a pause go at once. While more keep coming they are gathered for `spread_ns`, twice as long for
    what is advertised of clusters and so on: a neighbour gets the newest of each key at once, and nothing that it sent
    itself in between. Times are random, so that of two neighbours one is first and the other has nothing left to send.

    Neighbours that will hear of something from others are offered it within `offer_ns`, all of it in one message,
    unless they show before that they have it.
    """

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self.next_ns = NEVER
        self._rng = rng
        self._waiting: _Waiting = {}
        self._offers: _Waiting = {}
        self._spread_ns = -NEVER  # when something was last sent on
        self._take_ns = self._offer_ns = NEVER

    def add(self, key: Key, sequence: int, peers: Iterable[str], now_ns: int) -> None:
        """These neighbours are to hear of it."""
        if _put(self._waiting, key, sequence, peers):
            wait_ns = self.settings.spread_ns << key[1]
            due_ns = max(self._spread_ns, now_ns - wait_ns if not key[1] else now_ns)
            due_ns += int(wait_ns * self._rng.uniform(0.5, 1.0))
            self._take_ns = min(self._take_ns, max(due_ns, now_ns))
            self.next_ns = min(self._take_ns, self._offer_ns)

    def offer(self, key: Key, sequence: int, peers: Iterable[str], now_ns: int) -> None:
        """These neighbours should hear of it from others: they are asked later."""
        if _put(self._offers, key, sequence, peers) and self._offer_ns == NEVER:
            self._offer_ns = now_ns + int(self.settings.offer_ns * self._rng.uniform(0.5, 1.0))
            self.next_ns = min(self._take_ns, self._offer_ns)

    def has(self, peer: str, key: Key, sequence: int) -> None:
        """A neighbour has sent it: it needs not get it."""
        for queue in (self._waiting, self._offers):
            waiting = queue.get(peer)
            if waiting and waiting.get(key, sequence + 1) <= sequence:
                del waiting[key]

    def lost(self, peer: str) -> None:
        """That neighbour is gone."""
        self._waiting.pop(peer, None)
        self._offers.pop(peer, None)

    def take(self, now_ns: int) -> list[tuple[str, Key]]:
        """What to send to whom, if it is time; nothing of it is kept."""
        if now_ns < self._take_ns:
            return []
        self._take_ns = NEVER
        self.next_ns = self._offer_ns
        waiting, self._waiting = self._waiting, {}
        found = [(peer, key) for peer, keys in waiting.items() for key in keys]
        if found:
            self._spread_ns = now_ns
        return found

    def offered(self, now_ns: int) -> dict[str, list[Key]]:
        """Whom to offer what, if it is time; nothing of it is kept."""
        if now_ns < self._offer_ns:
            return {}
        self._offer_ns = NEVER
        self.next_ns = self._take_ns
        offers, self._offers = self._offers, {}
        return {peer: list(keys) for peer, keys in offers.items() if keys}


def _put(queue: _Waiting, key: Key, sequence: int, peers: Iterable[str]) -> bool:
    found = False
    for peer in peers:
        queue.setdefault(peer, {})[key] = sequence
        found = True
    return found
