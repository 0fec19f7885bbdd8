"""Names of variables along the tree of brokers: who searches for a pattern, and what there is and comes that matches.

A router, a child or the parent searches (`Search`); a broker searches by its other links for what is searched for by
one of them, so every leaf hears of it. A leaf names its own publications, all that there are and each that comes, and
names travel back to whoever searches (`Names`). Nothing is stored but patterns: whoever searches for a pattern again
has everything named again, perhaps to others too, who know it already.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from chappe.machine import NEVER
from chappe.security.patterns import AddressPattern, PatternError, variable_address
from chappe.status.machine import Address
from chappe.status.outbox import Outbox
from chappe.wire.management import MAX_NAMES, Names, Search
from chappe.wire.topics import REST

log = logging.getLogger(__name__)

MOST = 256  # patterns by one link: who searches for more searches for everything
COMPARED = 2_000  # names with patterns, in one tick: some milliseconds
PAUSE_NS = 200_000_000  # between two looks at all publications, so that a thousand routers that return cost a few

Name = tuple[str, str]  # publisher, variable


class NameSearch:
    """Of one broker. `own`: what is published in its cloud, by name; nothing at an inner broker."""

    def __init__(self, out: Outbox, own: Mapping[Name, object]) -> None:
        self._out = out
        self._own = own
        self._by_link: dict[Address, dict[str, None]] = {}  # who searches, for what
        self._askers: dict[str, dict[Address, None]] = {}  # the same by pattern
        self._patterns: dict[str, AddressPattern] = {}
        self._sent: dict[Address, set[str]] = {}  # brokers that can be asked: what they were asked for
        self._again: dict[str, set[Address]] = {}  # patterns that are searched for once more, and by whom
        self._changed = False
        self._unscanned: dict[str, dict[Address, None]] = {}  # to whom all publications that match are to be named
        self._scan: Iterator[None] | None = None
        self._rests_until_ns = 0
        self._came: deque[Name] = deque()  # published and not named yet

    # --- links

    def up(self, link: Address, finds: bool) -> None:
        """A broker above or below is there, and knows `Search` or not: it hears of everything."""
        self._sent.pop(link, None)
        if finds:
            self._sent[link] = set()
            self._changed = True

    def lost(self, link: Address) -> None:
        """Its connection is over, and with it what it searched for."""
        self._sent.pop(link, None)
        for pattern in self._by_link.pop(link, ()):
            self._forget(link, pattern)

    # --- messages

    def search(self, link: Address, message: Search) -> None:
        """A link searches for patterns, perhaps again, or for some no more."""
        asked = self._by_link.setdefault(link, {})
        for pattern in message.end:
            if pattern in asked:
                del asked[pattern]
                self._forget(link, pattern)
        for pattern in message.begin:
            if pattern not in asked and len(asked) >= MOST:
                log.warning("%s searches for more than %s patterns; the others are ignored", link, MOST)
                break
            if pattern in self._patterns or self._readable(link, pattern):
                asked[pattern] = None
                self._askers.setdefault(pattern, {})[link] = None
                self._again.setdefault(pattern, set()).add(link)
                self._changed = True
                if self._own:
                    self._unscanned.setdefault(pattern, {})[link] = None
        if not asked:
            del self._by_link[link]

    def named(self, link: Address, message: Names) -> None:
        """A broker names variables: they go to all other links that search for the pattern.

        What is found by `#` goes to everybody who searches: it may have been asked for in place of other patterns.
        """
        if not self._sent.get(link):
            return
        wanted = self._by_link if message.pattern == REST else self._askers.get(message.pattern, {})
        for other in wanted:
            if other != link:
                self._out.send(other, message)

    def published(self, name: Name) -> None:
        """A variable of this cloud is published."""
        if self._askers:
            self._came.append(name)

    # --- time

    def flush(self) -> None:
        """The end of a turn: ask the other brokers for what changed."""
        if not self._changed:
            return
        self._changed = False
        again, self._again = self._again, {}
        for link, sent in self._sent.items():
            wanted = summary(
                (pattern for pattern, askers in self._askers.items() if len(askers) > 1 or link not in askers), MOST
            )
            repeated = {
                pattern if pattern in sent else REST for pattern, askers in again.items() if askers - {link}
            } & wanted  # fmt: skip
            self._sent[link] = wanted
            for message in messages((wanted - sent) | repeated, sent - wanted):
                self._out.send(link, message)

    def next_tick(self) -> int:
        if self._scan is not None or self._came:
            return 0
        return self._rests_until_ns if self._unscanned else NEVER

    def tick(self, now_ns: int) -> None:
        """Name a slice of what there is, and of what came."""
        came = [self._came.popleft() for _ in range(min(len(self._came), _at_once(self._patterns)))]
        self._name(came, {text: list(askers) for text, askers in self._askers.items()} if came else {})
        if self._scan is None and self._unscanned and now_ns >= self._rests_until_ns:
            searched, self._unscanned = self._unscanned, {}
            self._scan = self._look_through(searched)
        if self._scan is not None and next(self._scan, self) is self:
            self._scan = None
            self._rests_until_ns = now_ns + PAUSE_NS

    # --- how

    def _readable(self, link: Address, text: str) -> bool:
        try:
            pattern = AddressPattern.address(text)
        except PatternError as error:
            log.warning("%s searches for what is no pattern: %s", link, error)
            return False
        self._patterns[text] = pattern
        return True

    def _forget(self, link: Address, pattern: str) -> None:
        askers = self._askers[pattern]
        del askers[link]
        if not askers:
            del self._askers[pattern], self._patterns[pattern]
        self._changed = True

    def _look_through(self, searched: dict[str, dict[Address, None]]) -> Iterator[None]:
        """Name all publications that match to who searches; pauses after each slice."""
        exact = {text for text in searched if text in self._patterns and self._patterns[text].exact}
        for text in exact:  # what a node waits for by name is looked up
            publisher, *levels = self._patterns[text].levels
            self._name([(publisher, "/".join(levels))], {text: list(searched.pop(text))})
        names = iter(list(self._own) if searched else ())
        while part := list(islice(names, _at_once(searched))):
            links = {text: [link for link in by if link in self._askers.get(text, ())] for text, by in searched.items()}
            self._name(part, links)
            yield

    def _name(self, names: Iterable[Name], links: Mapping[str, list[Address]]) -> None:
        """Name those that match a pattern, and are still published, to its links."""
        patterns = {text: self._patterns[text] for text, some in links.items() if some}
        found: dict[str, list[Name]] = {}
        for name in names:
            address = address_of(name) if name in self._own else None
            if address is None:
                continue
            for text, pattern in patterns.items():
                if pattern.covers(address):
                    found.setdefault(text, []).append(name)
        for text, matching in found.items():
            for at in range(0, len(matching), MAX_NAMES):
                message = Names(pattern=text, variables=tuple(matching[at : at + MAX_NAMES]))
                for link in links[text]:
                    self._out.send(link, message)


def _at_once(patterns: Mapping[str, object]) -> int:
    return max(1, COMPARED // max(1, len(patterns)))


def summary(patterns: Iterable[str], most: int) -> set[str]:
    """These patterns; everything, if they are too many."""
    found: set[str] = set()
    for pattern in patterns:
        found.add(pattern)
        if len(found) > most:
            return {REST}
    return found


def messages(begin: Iterable[str], end: Iterable[str]) -> Iterator[Search]:
    """The messages that say so, each of a bounded size."""
    for at in _parts(sorted(end)):
        yield Search(end=at)
    for at in _parts(sorted(begin)):
        yield Search(begin=at)


def _parts(patterns: list[str]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(patterns), MAX_NAMES):
        yield tuple(patterns[at : at + MAX_NAMES])


def address_of(name: Name) -> AddressPattern | None:
    """What patterns are compared with; None: there is no such name, and no edge lets one pass."""
    try:
        return AddressPattern.address(variable_address(*name))
    except PatternError:
        return None
