"""The publications of a cloud: names, ids, and the claims to names of publishers (GS-031, GS-032, GS-080)."""

from __future__ import annotations

import msgspec

from chappe.status.allocation.allocation import Refusal
from chappe.status.leaf.agenda import EntityReleased
from chappe.status.leaf.cloud import Cloud, Numbers
from chappe.status.leaf.state import CounterItem, Publication
from chappe.wire.base import Variable

COUNTER_BITS = 22
COUNTERS = 1 << COUNTER_BITS


class Registry:
    """Every variable published here, by name and by id."""

    def __init__(self, cloud: Cloud, number: int) -> None:
        self._cloud = cloud
        self._leaf = number << COUNTER_BITS
        self._numbers = Numbers(cloud.outbox, "variable")
        self.by_id: dict[int, Publication] = {}
        self.by_name: dict[tuple[str, str], Publication] = {}
        self.by_entity: dict[str, dict[int, Publication]] = {}
        self.publishers: dict[str, int] = {}  # name -> variables
        self.undecided: set[int] = set()  # variables whose new rate may still be refused

    def restore(self, counter: CounterItem | None, publications: dict[str, Publication]) -> None:
        self._numbers.restore(counter)
        for publication in publications.values():
            self._cloud.allocator.publish(publication.edge, publication.variable)
            self._index(publication)

    def issue(self) -> int:
        """An id that nothing refers to."""
        for _ in range(COUNTERS):
            counter = self._numbers.take() % COUNTERS
            if counter and self._leaf | counter not in self._cloud.used:
                return self._leaf | counter
        raise OverflowError("all variable ids of this leaf are in use")

    def add(self, variable: Variable, edge: str, entity: str) -> Publication | Refusal:
        """Publish it; the id is in the variable of what is returned."""
        identified = msgspec.structs.replace(variable, variable_id=variable.variable_id or self.issue())
        refusal = self._cloud.allocator.publish(edge, identified)
        if refusal is not None:
            return refusal
        publication = Publication(variable=identified, edge=edge, entity=entity)
        self._index(publication)
        self._cloud.outbox.put("publication", str(identified.variable_id), publication)
        return publication

    def remove(self, publication: Publication) -> bool:
        """Withdraw it; True if its publisher has none left here."""
        variable = publication.variable
        del self.by_id[variable.variable_id]
        del self.by_name[variable.publisher, variable.variable]
        own = self.by_entity[publication.entity]
        del own[variable.variable_id]
        if not own:
            del self.by_entity[publication.entity]
            self._cloud.agenda.add(EntityReleased(publication.entity))
        self._cloud.allocator.unpublish(variable.variable_id)
        self._cloud.outbox.drop("publication", str(variable.variable_id))
        self._cloud.forget(variable.variable_id)
        self.publishers[variable.publisher] -= 1
        if self.publishers[variable.publisher]:
            return False
        del self.publishers[variable.publisher]
        return True

    def _index(self, publication: Publication) -> None:
        variable = publication.variable
        self.by_id[variable.variable_id] = publication
        self.by_name[variable.publisher, variable.variable] = publication
        self.by_entity.setdefault(publication.entity, {})[variable.variable_id] = publication
        self.publishers[variable.publisher] = self.publishers.get(variable.publisher, 0) + 1
        self._cloud.refer(variable.variable_id)


def problem(variable: Variable) -> str:
    """What is wrong with a registration; empty if nothing is."""
    name = f"{variable.publisher}/{variable.variable}"
    if not variable.publisher or not variable.variable:
        return f"variable {name!r}: publisher and variable must have a name"
    if variable.rate_num < 0 or variable.rate_den <= 0 or variable.minimum_ns < 0 or variable.slowest_ns < 0:
        return f"variable {name}: rate {variable.rate_num}/{variable.rate_den} and intervals must not be negative"
    if variable.slowest_ns and variable.rate_num and variable.slowest_ns * variable.rate_num < variable.rate_den:
        fastest = variable.rate_den / variable.rate_num
        return (f"variable {name}: its longest interval of {variable.slowest_ns} ns is below its publishing interval "
                f"of {fastest:g} ns; exchange them")  # fmt: skip
    if not 0 <= variable.priority <= 6:
        return f"variable {name}: priority {variable.priority} is not one of 0 (alert) to 6 (background)"
    if not 0 <= variable.options <= 255:
        return f"variable {name}: {variable.options} option blocks; a record carries 0 to 255"
    return ""


def same(one: Variable, other: Variable) -> bool:
    """Whether two registrations say the same, whatever their ids."""
    return msgspec.structs.replace(one, variable_id=other.variable_id) == other
