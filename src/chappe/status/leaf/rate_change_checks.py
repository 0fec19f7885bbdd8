"""Whether the rate of a variable can be changed in place, or only by withdrawing it (GS-073)."""

from __future__ import annotations

import msgspec

from chappe.status.condensation.placement import Functions
from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.path_segments import Segments
from chappe.status.leaf.state import Publication
from chappe.status.leaf.subscriptions import Subscriptions
from chappe.status.machine import Address
from chappe.wire.base import Variable


class RateChangeChecks:
    """Asks the parts that use a variable whether they can follow a change of its rate."""

    def __init__(
        self, subscriptions: Subscriptions, segments: Segments, flooding: LeafFlooding, functions: Functions
    ) -> None:
        self._subscriptions = subscriptions
        self._segments = segments
        self._flooding = flooding
        self._functions = functions

    def problem(self, address: Address, publication: Publication, requested: Variable) -> tuple[str, str] | None:
        """Why it cannot be changed in place: code and reason."""
        known, name = publication.variable, named(requested)
        paced = msgspec.structs.replace(
            requested, rate_num=known.rate_num, rate_den=known.rate_den, priority=known.priority,
            slowest_ns=known.slowest_ns, minimum_ns=known.minimum_ns,
        )  # fmt: skip
        if paced != known or bool(requested.rate_num) != bool(known.rate_num) or publication.edge != address[7:]:
            return "exists", f"{name} is published with other properties; withdraw it first"
        number, again = requested.variable_id, "withdraw it and register it again with the new rate"
        if self._segments.by_variable.get(number) or any(
            each.remote for each in self._subscriptions.by_variable.get(number, {}).values()
        ):
            return "unsupported", f"{name} has subscribers whose paths lead through other clouds; {again}"
        if max(self._flooding.floods.ranks(number), default=0) > 1:
            return "unsupported", f"{name} is flooded by a broker above; {again}"
        functions = self._functions.fed_by((requested.publisher, requested.variable))
        if functions:
            return "unsupported", f"{name} is an input of the function {', '.join(functions[:5])}; {again}"
        return None


def named(variable: Variable) -> str:
    return f"{variable.publisher}/{variable.variable}"
