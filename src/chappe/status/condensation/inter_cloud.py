"""Functions between clouds: a request goes to the one cloud that has all the inputs, its answer the same way back."""

from __future__ import annotations

import msgspec

from chappe.status.inner.calls import AWAY, PARENT, Answer, Calls
from chappe.status.inner.claims import Claims
from chappe.status.inner.netview import NetView
from chappe.status.machine import Address
from chappe.status.outbox import Outbox
from chappe.wire.base import Failed, Message
from chappe.wire.management import Condense, Function, Issued, Uncondense

ANSWER_NS = 30_000_000_000  # longer than a leaf takes to settle, lay the inputs and place a function
SHOWN = 5  # names in a reason


class InterCloudFunctions:
    """Keeps nothing: a leaf gives the same answer to the same request, so whatever is lost is asked again."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, claims: Claims, has_parent: bool) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._claims = claims
        self._has_parent = has_parent

    def condense(self, source: Address, request: Condense, now_ns: int) -> None:
        """Pass it down to the cloud of all inputs, or up if some of them are not below here (GS-134)."""
        function = request.function
        name = f"function {function.publisher}/{function.variable}"
        clouds = self._clouds(function)
        nowhere = clouds.pop("", [])
        if nowhere and self._has_parent:
            self._up(source, request, f"{name}: nobody below {self._view.role} publishes {_some(nowhere)}", now_ns)
        elif nowhere:
            reason = f"{name}: nobody publishes {_some(nowhere)}; correct the names or wait for them"
            self._refuse(source, request, Failed(id=0, reason=reason, code="unknown"), now_ns)
        elif len(clouds) > 1:
            parts = "; ".join(f"{cloud} has {_some(clouds[cloud])}" for cloud in sorted(clouds))
            reason = (
                f"{name}: its inputs are in {len(clouds)} clouds ({parts}), and a function runs where all of them are;"
            )
            reason += " create one function in each cloud, and combine their outputs where they are received"
            self._refuse(source, request, Failed(id=0, reason=reason, code="invalid"), now_ns)
        else:
            self._down(source, request, next(iter(clouds), ""), self._back(source, request.id), now_ns)

    def uncondense(self, source: Address, request: Uncondense, now_ns: int) -> None:
        """Pass it to the cloud that has the name of the output; the leaf there knows whose function it is (GS-136)."""
        cloud = self._claims.cloud(request.publisher)
        reason = f"there is no function {request.publisher}/{request.variable}"
        if cloud:
            self._down(source, request, cloud, self._back(source, request.id), now_ns)
        elif self._has_parent:
            self._up(source, request, f"{reason} below {self._view.role}", now_ns)
        else:
            self._out.send(source, Failed(id=request.id, reason=reason, code="unknown"))

    def _clouds(self, function: Function) -> dict[str, list[str]]:
        """Inputs by the cloud of their publisher; under nothing those that nobody below has."""
        found: dict[str, list[str]] = {}
        for each in function.inputs:
            found.setdefault(self._claims.cloud(each.publisher), []).append(f"{each.publisher}/{each.variable}")
        return found

    def _up(self, source: Address, request: Condense | Uncondense, problem: str, now_ns: int) -> None:
        if not self._calls.parent_up:
            reason = f"{problem}, and no broker above it can be reached; try again"
            self._out.send(source, Failed(id=request.id, reason=reason, code="unavailable"))
            return
        answer = self._back(source, request.id)
        self._calls.call(PARENT, msgspec.structs.replace(request), answer, now_ns, ANSWER_NS, kept=True)

    def _down(self, source: Address, request: Condense | Uncondense, cloud: str, answer: Answer, now_ns: int) -> None:
        child = self._view.reached(cloud)
        if child:
            passed = msgspec.structs.replace(request, cloud=cloud)
            self._calls.call(f"child/{child}", passed, answer, now_ns, ANSWER_NS)
        else:
            reason = f"the broker {cloud}, which has to decide on the function, is not connected; try again"
            self._out.send(source, Failed(id=request.id, reason=reason, code="unavailable"))

    def _refuse(self, source: Address, request: Condense, failed: Failed, now_ns: int) -> None:
        """Unless it is there already: inputs may have been withdrawn or have moved since it was created."""
        back = self._back(source, request.id)
        cloud = self._claims.cloud(request.function.publisher)
        if not cloud or not self._view.reached(cloud):
            back(failed, now_ns)
            return

        def answer(message: Message, now_ns: int) -> None:
            open_or_there = isinstance(message, Issued) or (isinstance(message, Failed) and message.code == AWAY)
            back(message if open_or_there else failed, now_ns)

        self._down(source, request, cloud, answer, now_ns)

    def _back(self, source: Address, number: int) -> Answer:
        """Answers who asked; not another process in its place, which numbers its requests anew and asks again."""
        asker = self._view.children[source.removeprefix("child/")]
        issuer = asker.issuer

        def answer(message: Message, now_ns: int) -> None:
            if asker.issuer != issuer:
                return
            if isinstance(message, Failed) and message.code == AWAY:
                message = Failed(id=0, reason=f"{message.reason}; ask again whether it was done", code="unavailable")
            self._out.send(source, msgspec.structs.replace(message, id=number))

        return answer


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
