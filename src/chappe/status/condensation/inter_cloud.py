"""Functions between clouds: a request goes to the cloud that runs it, its answer comes back (GS-134, GS-139)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from chappe.status.condensation.checks import check
from chappe.status.condensation.splitting import home_of, split
from chappe.status.inner.calls import AWAY, Calls, Receiver
from chappe.status.inner.claims import Claims
from chappe.status.inner.netview import NetView
from chappe.status.machine import PARENT, Address
from chappe.status.outbox import Outbox
from chappe.wire.base import Answer, Failed, Variable
from chappe.wire.management import Compound, Condense, Describe, Described, Function, Issued, Uncondense

ANSWER_NS = 30_000_000_000  # longer than a leaf takes to settle, set up the inputs and place a function
SHOWN = 5  # names in a reason

Name = tuple[str, str]


class InterCloudFunctions:
    """Keeps nothing: a leaf gives the same answer to the same request, so whatever is lost is asked again."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, claims: Claims, has_parent: bool) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._claims = claims
        self._has_parent = has_parent

    def condense(self, source: Address, request: Condense, now_ns: int) -> None:
        """Pass it to the cloud of its inputs, of several to one of them, or up if not all are below here (GS-134)."""
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
            self._describe(source, request, now_ns)
        else:
            self._down(source, request, next(iter(clouds), ""), self._back(source, request.id), now_ns)

    def _describe(self, source: Address, request: Condense, now_ns: int) -> None:
        """Ask every cloud about its inputs and what they are made of, then decide where the function runs (GS-139)."""
        function = request.function
        inputs = [(each.publisher, each.variable) for each in function.inputs]
        found: dict[Name, Variable] = {}
        waiting: dict[Name, None] = {}
        seen: set[Name] = set()
        refused: list[Failed] = []

        def refuse(reason: str, code: str, now_ns: int) -> None:
            reason = f"function {function.publisher}/{function.variable}: {reason}"
            refused.append(Failed(id=0, reason=reason, code=code))
            self._refuse(source, request, refused[0], now_ns)

        def answered(name: Name, answer: Answer, now_ns: int) -> None:
            waiting.pop(name)
            if refused:
                return
            if isinstance(answer, Described):
                found[name] = answer.variable
                describe(answer.made_of, now_ns)
            elif name in inputs:
                reason = answer.reason if isinstance(answer, Failed) else f"unexpected answer {type(answer).__name__}"
                known = isinstance(answer, Failed) and answer.code != AWAY
                refuse(reason, answer.code if known and isinstance(answer, Failed) else "unavailable", now_ns)
                return
            if waiting:
                return
            if (function.publisher, function.variable) in seen:
                refuse("it would compute its output from itself, through functions of other clouds", "invalid", now_ns)
            else:
                self._plan(source, request, [found[name] for name in inputs], now_ns)

        def describe(names: Iterable[Name], now_ns: int) -> None:
            new = [name for name in dict.fromkeys(names) if name not in seen]
            seen.update(new)
            away = []
            for name in new:
                cloud = self._claims.cloud(name[0])
                child = self._view.reached(cloud) if cloud else ""
                if child:
                    waiting[name] = None
                    question = Describe(id=0, publisher=name[0], variable=name[1], cloud=cloud)
                    self._calls.call(f"child/{child}", question, partial(answered, name), now_ns, ANSWER_NS)
                elif name in inputs:
                    away.append(f"the broker {cloud}, which has {'/'.join(name)}, is not connected; try again")
            if away and not refused:
                refuse(away[0], "unavailable", now_ns)

        describe(inputs, now_ns)

    def _plan(self, source: Address, request: Condense, inputs: list[Variable], now_ns: int) -> None:
        """The cloud whose name the output has, that of the requested router, or the one with most inputs."""
        function = request.function
        clouds = [self._claims.cloud(each.publisher) for each in function.inputs]
        problem = check(function, inputs)
        requested = self._view.cloud_of(function.place) if function.place else ""
        if problem is None and function.place and not requested:
            problem = f"function {function.publisher}/{function.variable}: there is no router {function.place} "
            problem += f"below {self._view.role} to run it"
        if problem is not None:
            self._refuse(source, request, Failed(id=0, reason=problem, code="invalid"), now_ns)
            return
        home = self._claims.cloud(function.publisher) or requested or home_of(function, inputs, clouds)
        made = split(function, inputs, clouds, home)
        compound = Compound(described=tuple(inputs))
        if made is not None:
            compound = Compound(
                described=tuple(inputs), parts=made.parts, combiner=made.combiner, inputs=made.inputs
            )  # fmt: skip
        passed = msgspec.structs.replace(request, compound=compound)
        self._down(source, passed, home, self._back(source, request.id), now_ns)

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

    def _down(self, source: Address, request: Condense | Uncondense, cloud: str, answer: Receiver, now_ns: int) -> None:
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

        def answer(message: Answer, now_ns: int) -> None:
            open_or_there = isinstance(message, Issued) or (isinstance(message, Failed) and message.code == AWAY)
            back(message if open_or_there else failed, now_ns)

        self._down(source, request, cloud, answer, now_ns)

    def _back(self, source: Address, number: int) -> Receiver:
        """Answers who asked; not another process in its place, which numbers its requests anew and asks again."""
        asker = self._view.children[source.removeprefix("child/")]
        issuer = asker.issuer

        def answer(message: Answer, now_ns: int) -> None:
            if asker.issuer != issuer:
                return
            if isinstance(message, Failed) and message.code == AWAY:
                message = Failed(id=0, reason=f"{message.reason}; ask again whether it was done", code="unavailable")
            self._out.send(source, msgspec.structs.replace(message, id=number))

        return answer


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
