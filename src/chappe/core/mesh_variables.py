"""Variables in a mesh without brokers: what is published here, and which neighbours may have what they look for."""

from __future__ import annotations

from collections.abc import Iterator

from chappe.core.directory import Directory, Entry
from chappe.core.flows import Flows
from chappe.core.offers import Offers
from chappe.security.patterns import variable_address
from chappe.wire.control import DemandTerm
from chappe.wire.mesh import Place
from chappe.wire.topics import has_wildcard

SLICE = 100  # variables looked at in one turn of the loop
DISCOVERED = ""  # the key, among those of static paths, of what a neighbour has looked for
ANYTHING = DemandTerm(priority=0)
BACKGROUND = DemandTerm(priority=6)  # behind what brokers have promised


class MeshVariables:
    """What discovery (`chappe.events.discovery`) asks of the variables of a node."""

    def __init__(self, address: str, directory: Directory, flows: Flows, discovered: DemandTerm = ANYTHING) -> None:
        """`address`: of this node in its mesh; empty if it is in none. `discovered`: what neighbours get at most."""
        self.address = address
        self.stamp = 0  # changes when `publishers` does
        self._directory = directory
        self._flows = flows
        self._discovered = discovered
        self._offers = Offers(address)
        self._rooted: dict[str, int] = {}  # by publisher, how many variables come from here
        self._ask_again: dict[str, None] = {}  # patterns of what is asked for elsewhere now
        self._looking: Iterator[None] | None = None  # through variables that a neighbour may or may not have now

    # --- for discovery

    def publishers(self) -> list[str]:
        """Publishers, as the first level of addresses, whose variables come from here."""
        if not self.address:
            return []
        return [variable_address(publisher, "x").rpartition("/")[0] for publisher in self._rooted]

    def offer(self, port: int, neighbour: str, target: Place, pattern: str) -> None:
        """A neighbour looks for what matches and is published there: it may have it."""
        if self.address:
            self._offers.add(port, neighbour, target, pattern)

    def take_back(self, port: int, target: Place, pattern: str) -> None:
        """It looks for it no more."""
        self._offers.remove(port, target, pattern)

    def take_back_all(self, port: int) -> None:
        """That neighbour looks for nothing any more."""
        self._offers.remove_port(port)

    def ask_again(self, pattern: str) -> None:
        """What matches is looked for by other links than before."""
        self._ask_again[pattern] = None

    # --- for the variables of the node

    def name(self, port: int) -> str:
        """Of the neighbour that looks for something by that port; empty if it is gone."""
        return self._offers.name(port)

    def route(self, entry: Entry) -> None:
        """Offer a variable to those who look for it."""
        for port in self._offers.ports(entry) if entry.located else ():
            self._flows.offer(entry, DISCOVERED, self._offers.name(port), port, self._discovered)

    def count_rooted(self, entry: Entry) -> None:
        """Whether it comes from here may have changed: its publisher is advertised in the mesh."""
        here = not entry.origin and (entry.published or bool(entry.owner_name)) and not entry.sources
        if here is not entry.rooted:
            self.root(entry, here)

    def root(self, entry: Entry, here: bool) -> None:
        """It comes from here, or does so no more."""
        if here is entry.rooted:
            return
        entry.rooted = here
        publisher = entry.variable.publisher
        before = self._rooted.get(publisher, 0)
        self._rooted[publisher] = before + (1 if here else -1)
        if not self._rooted[publisher]:
            del self._rooted[publisher]
        self.stamp += not before or publisher not in self._rooted

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._looking or self._offers.changed or self._ask_again)

    def work(self) -> None:
        """A slice of the variables that a neighbour may have now, or may have no more."""
        for _ in range(SLICE):
            if self._looking is None and self._offers.changed:
                self._looking = self._reconsider(*self._offers.changed.popleft())
            elif self._looking is None and self._ask_again:
                pattern = next(iter(self._ask_again))
                del self._ask_again[pattern]
                self._looking = self._demand_again(pattern)
            if self._looking is None:
                return
            if next(self._looking, self) is self:
                self._looking = None

    # --- how it is done

    def _demand_again(self, text: str) -> Iterator[None]:
        """State what is wanted of a pattern to whom it is to be stated now."""
        for entry in self._matching(text):
            if len(entry.inputs) > 1:
                self._flows.demand(entry)
            yield

    def _matching(self, text: str) -> Iterator[Entry]:
        """Variables that match a pattern and, of one with wildcards, others: it costs less to look at them."""
        if has_wildcard(text):
            yield from self._directory.walk()
            return
        publisher, _, variable = text.removeprefix("str:").partition("/")
        entry = self._directory.named(publisher, variable)
        if entry is not None:
            yield entry

    def _reconsider(self, port: int, text: str) -> Iterator[None]:
        """Offer to a neighbour what it may have of a pattern, and take back what it may not; stops now and then."""
        for entry in self._matching(text):
            if self._offers.cover(port, entry):
                if entry.published and entry.located:
                    self._flows.offer(entry, DISCOVERED, self._offers.name(port), port, self._discovered)
            elif (DISCOVERED, port) in entry.routes:
                self._flows.withdraw(entry, [(DISCOVERED, port)])
            yield
