"""Condensation functions of a cloud: where they run, what they get, what they publish (GS-134 to GS-136)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from chappe.machine import NEVER
from chappe.status.condensation.checks import check, output_of
from chappe.status.condensation.remote_parts import RemoteParts
from chappe.status.leaf.agenda import Published, PublisherReleased, Withdraw
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.pending_removals import PendingRemovals
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.routers import FUNCTION, Key, PlacedFunction
from chappe.status.leaf.state import FunctionItem, Publication, Subscription
from chappe.status.leaf.subscriptions import Subscriptions
from chappe.status.machine import Address
from chappe.wire.base import Failed, Message, Qos, Variable
from chappe.wire.management import Compound, Condense, Function, Input, Issued, Uncondense

START_NS = 15_000_000_000  # a worker is a process that has to start
COMPOUND_NS = 28_000_000_000  # those of parts in other clouds before it; less than an ancestor waits
AGAIN_NS = 1_000_000_000  # an input of another cloud that is not there is asked for again after so long

Name = tuple[str, str]


class _Work:
    """A function that is being placed in a router: its inputs first, then itself."""

    def __init__(self, functions: Functions, item: FunctionItem, inputs: Iterable[str], deadline_ns: int) -> None:
        self._functions = functions
        self.item = item
        self.askers: dict[tuple[Address, int], None] = {}
        self._waiting = {*inputs}  # keys of subscriptions
        self.deadline_ns = deadline_ns
        self.over = False

    def input_ready(self, key: str, reason: str, code: str) -> None:
        if self.over:
            return
        if code:
            self._functions.failed(self, reason, code)
            return
        self._waiting.discard(key)
        if not self._waiting:
            self._functions.place(self)

    def confirmed(self, router: str, key: Key) -> None:
        if not self.over:
            self._functions.placed(self)

    def refused(self, router: str, key: Key, reason: str) -> None:
        self._functions.failed(self, f"router {router} refuses the function: {reason}", "invalid")

    def lost(self, router: str) -> None:
        self._functions.failed(self, f"router {router} was lost while the function was placed", "unavailable")


class Functions:
    """By the id of their output."""

    def __init__(
        self, cloud: Cloud, registry: Registry, subscriptions: Subscriptions,
        remote_subscriptions: RemoteSubscriptions, remote_parts: RemoteParts,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._registry = registry
        self._subscriptions = subscriptions
        self._remote_subscriptions = remote_subscriptions
        self._remote_parts = remote_parts
        self.pending_removals = PendingRemovals(cloud, "displace", FUNCTION)
        self.by_id: dict[int, FunctionItem] = {}
        self.by_name: dict[tuple[str, str], FunctionItem] = {}
        self._by_input: dict[tuple[str, str], dict[int, None]] = {}
        self._works: dict[int, _Work] = {}
        self._missing: dict[tuple[int, Name], int] = {}  # inputs of other clouds that are asked for again, and when

    def restore(self, items: dict[str, FunctionItem]) -> None:
        for item in items.values():
            self._index(item)
            if item.placed:
                self._cloud.routers.restore(item.router, _key(item), _placed_function(item))

    def resume(self) -> None:
        """One that was not complete when the broker before this one ended is undone; its creator asks again."""
        for item in list(self.by_id.values()):
            if not item.placed:
                self._undo(item, "not complete before a restart")
                continue
            if not item.inputs_confirmed:
                self._cloud.routers.set(item.router, _key(item), _placed_function(item))
            owned = self._owned(item)
            for name in item.remote:
                if name not in owned:
                    self._missing[item.output.variable_id, name] = self._cloud.now_ns

    # requests

    def is_remote(self, function: Function) -> bool:
        """Whether this cloud has neither such a function or variable nor all that the function needs."""
        name = (function.publisher, function.variable)
        needed = {(each.publisher, each.variable) for each in function.inputs}
        known = name in self.by_name or name in self._registry.by_name or name in needed
        return not known and not needed <= self._registry.by_name.keys()

    def condense(self, address: Address, request: Condense, creator: str) -> None:
        function = request.function
        name = (function.publisher, function.variable)
        known = self.by_name.get(name)
        if known is not None and known.creator == creator and known.function == function:
            if known.placed:
                self._cloud.answer(address, self._issued(known, request.id))
            else:
                self._works[known.output.variable_id].askers[address, request.id] = None
            return
        if known is not None or name in self._registry.by_name:
            reason = f"{'/'.join(name)} exists; withdraw it first or take another name"
            self._cloud.fail(address, request.id, "exists", reason)
            return
        cycle = _cycle(function, self.by_name)
        if cycle:
            reason = f"function {'/'.join(name)} would compute its output from itself ({cycle}); leave one of them out"
            self._cloud.fail(address, request.id, "invalid", reason)
            return
        if request.compound is not None:
            self._create_compound(address, request, request.compound, creator)
            return
        inputs = [self._registry.by_name.get((each.publisher, each.variable)) for each in function.inputs]
        asked = [f"{each.publisher}/{each.variable}" for each in function.inputs]
        missing = [each for each, publication in zip(asked, inputs, strict=True) if publication is None]
        if missing:
            some = ", ".join(missing[:5])
            reason = (
                f"function {'/'.join(name)}: nobody publishes {some} in cloud {self._cloud.role}; correct the names"
            )
            reason += " or wait for them"
            self._cloud.fail(address, request.id, "unknown", reason)
            return
        self._create(address, request, creator, [each for each in inputs if each is not None])

    def _create(self, address: Address, request: Condense, creator: str, inputs: list[Publication]) -> None:
        function = request.function
        problem = check(function, [each.variable for each in inputs])
        if problem:
            self._cloud.fail(address, request.id, "invalid", problem)
            return
        output = output_of(function, [each.variable for each in inputs], self._registry.issue())
        reason = f"function {function.publisher}/{function.variable}: no router of cloud {self._cloud.role} that may "
        reason += f"run it is connected ({function.place or 'any'} is requested)"
        for router in self._candidates(function, inputs):
            drafts, refusal = self._reserve(router, output, function, list(zip(function.inputs, inputs, strict=True)))
            if refusal:
                reason = f"function {function.publisher}/{function.variable} at {router}: {refusal}"
                continue
            item = FunctionItem(function=function, creator=creator, router=router, output=output,
                                inputs=tuple(each.variable for each in inputs), home=request.home)  # fmt: skip
            self._index(item)
            self._cloud.outbox.put("function", str(output.variable_id), item)
            self._begin(item, drafts, {(address, request.id): None})
            return
        self._cloud.fail(address, request.id, "capacity", reason)

    def _create_compound(self, address: Address, request: Condense, compound: Compound, creator: str) -> None:
        """A function with inputs of other clouds: own ones reserved, others asked for, parts created (GS-139)."""
        function, runs = request.function, compound.combiner or request.function
        name = f"function {function.publisher}/{function.variable}"
        given = compound.inputs if compound.combiner is not None else compound.described
        problem = check(function, compound.described) or check(runs, given)
        if problem:
            self._cloud.fail(address, request.id, "invalid", problem)
            return
        output = output_of(function, compound.described, self._registry.issue())
        found = {(each.publisher, each.variable): each for each in runs.inputs}
        own = [(each, self._registry.by_name[key]) for key, each in found.items() if key in self._registry.by_name]
        remote = tuple(key for key in found if key not in self._registry.by_name)
        reason = f"{name}: no router of cloud {self._cloud.role} that may run it is connected "
        reason += f"({function.place or 'any'} is requested)"
        for router in self._candidates(function, [publication for _, publication in own], remote=True):
            drafts, refusal = self._reserve(router, output, runs, own)
            if refusal:
                reason = f"{name} at {router}: {refusal}"
                continue
            item = FunctionItem(
                function=function, creator=creator, router=router, output=output, inputs=given, home=request.home,
                parts=compound.parts, combiner=compound.combiner, remote=remote,
            )  # fmt: skip
            self._index(item)
            self._cloud.outbox.put("function", str(output.variable_id), item)
            self._begin(item, drafts, {(address, request.id): None}, self._remote_drafts(item, remote))
            return
        self._cloud.fail(address, request.id, "capacity", reason)

    def _remote_drafts(self, item: FunctionItem, names: Iterable[Name]) -> list[Subscription]:
        asked = {(each.publisher, each.variable): each for each in item.runs.inputs}
        return [self._draft(item.output.variable_id, item.router, item.runs, asked[name]) for name in names]

    def uncondense(self, address: Address, request: Uncondense, creator: str) -> None:
        """Only its creator removes a function (GS-136)."""
        name = f"{request.publisher}/{request.variable}"
        item = self.by_name.get((request.publisher, request.variable))
        if item is None:
            self._cloud.fail(address, request.id, "unknown", f"there is no function {name}")
        elif item.creator != creator:
            self._cloud.fail(address, request.id, "denied", f"function {name} belongs to {item.creator!r}")
        else:
            self._undo(item, "its creator removed the function")
            self._cloud.done(address, request.id)

    # placement

    def _candidates(self, function: Function, inputs: list[Publication], remote: bool = False) -> list[str]:
        """The common edge of all inputs, else the requested router, else all of them, nearest to the inputs first."""
        edges = {each.edge for each in inputs}
        routers = self._cloud.topology_state.routers
        if len(edges) == 1 and not remote:
            chosen = list(edges)
        elif function.place:
            chosen = [function.place]
        else:
            distance = dict.fromkeys(routers, 0)
            for edge in (each.edge for each in inputs):
                far = self._distances(edge)
                for name in routers:
                    distance[name] += far.get(name, len(routers))
            chosen = sorted(routers, key=lambda name: (distance[name], name))
        return [name for name in chosen if name in routers and routers[name].up]

    def _distances(self, start: str) -> dict[str, int]:
        far = {start: 0}
        left = deque([start])
        while left:
            at = left.popleft()
            for name, channel in self._cloud.topology_state.around.get(at, {}).items():
                if channel.up and name in self._cloud.topology_state.routers and name not in far:
                    far[name] = far[at] + 1
                    left.append(name)
        return far

    def _reserve(self, router: str, output: Variable, function: Function,
                 inputs: Sequence[tuple[Input, Publication]]) -> tuple[list[Subscription], str]:  # fmt: skip
        """Everything the function needs at that router, or the reason why it cannot be had."""
        refusal = self._cloud.allocator.publish(router, output)
        drafts: list[Subscription] = []
        if refusal is None:
            for asked, publication in inputs:
                draft = self._draft(output.variable_id, router, function, asked)
                refusal = self._subscriptions.reserve(draft, publication)
                if refusal is not None:
                    break
                drafts.append(draft)
        if refusal is None:
            return drafts, ""
        for draft in drafts:
            self._cloud.allocator.release(draft.key)
        self._cloud.allocator.unpublish(output.variable_id)
        return [], refusal.reason

    def _draft(self, output: int, router: str, function: Function, asked: Input) -> Subscription:
        qos = Qos(interval_ns=asked.interval_ns, priority=function.priority)
        return Subscription(key=self._subscriptions.next_key(), entity="", edge=router, publisher=asked.publisher,
                            name=asked.variable, qos=(qos,), function=output)  # fmt: skip

    # set-up

    def _begin(self, item: FunctionItem, drafts: list[Subscription], askers: dict[tuple[Address, int], None],
               remote: Sequence[Subscription] = ()) -> None:  # fmt: skip
        """Set its inputs up: those of this cloud, those of others, and those that parts are to publish there."""
        deadline_ns = self._cloud.now_ns + (COMPOUND_NS if remote else START_NS)
        work = _Work(self, item, [draft.key for draft in (*drafts, *remote)], deadline_ns)
        self._works[item.output.variable_id] = work
        work.askers = askers
        parts = {(part.publisher, part.variable): part for part in item.parts}
        for draft in remote:
            part = parts.get((draft.publisher, draft.name))
            if part is None:
                self._remote_subscriptions.seek_input(draft)
            else:
                self._remote_parts.create(part, item.creator, partial(self._part_created, work, draft))
        for draft in drafts:
            self._subscriptions.begin(
                draft,
                finished=lambda reason, code, key=draft.key: work.input_ready(key, reason, code),  # type: ignore[misc]
            )

    def _part_created(self, work: _Work, draft: Subscription, answer: Message) -> None:
        if work.over:
            return
        if isinstance(answer, Failed):
            self.failed(work, f"its part {draft.publisher}/{draft.name}: {answer.reason}", answer.code)
        else:
            self._remote_subscriptions.seek_input(draft)

    def input_settled(self, subscription: Subscription, reason: str, code: str) -> None:
        """An input of another cloud is there; or is not, for a while if the function runs."""
        item = self.by_id.get(subscription.function)
        if item is None:
            return
        name = (subscription.publisher, subscription.name)
        work = self._works.get(subscription.function)
        if code:
            if item.placed:
                self._missing[subscription.function, name] = self._cloud.now_ns + AGAIN_NS
            elif work is not None:
                self.failed(work, f"input {'/'.join(name)} at {item.router}: {reason}", code)
            return
        variable = subscription.variable
        assert variable is not None
        inputs = tuple(variable if (each.publisher, each.variable) == name else each for each in item.inputs)
        changed = inputs != item.inputs
        if check(item.runs, inputs):  # of another type now: the function goes on without it
            self._remote_subscriptions.end(subscription, "is of another type now")
            return
        item.inputs, item.inputs_confirmed = inputs, item.inputs_confirmed and not changed
        self._cloud.outbox.put("function", str(item.output.variable_id), item)
        if work is not None:
            work.input_ready(subscription.key, "", "")
        elif changed:
            self._begin(item, [], {})
            self.place(self._works[subscription.function])

    def place(self, work: _Work) -> None:
        """All inputs are there."""
        self.pending_removals.forget(work.item.output.variable_id)
        self._cloud.routers.set(work.item.router, _key(work.item), _placed_function(work.item), work)

    def placed(self, work: _Work) -> None:
        item = work.item
        work.over = True
        del self._works[item.output.variable_id]
        again, item.placed, item.inputs_confirmed = item.placed, True, True
        self._cloud.outbox.put("function", str(item.output.variable_id), item)
        if again:
            for each in item.runs.inputs:  # another one may have come meanwhile
                published = self._registry.by_name.get((each.publisher, each.variable))
                if published is not None:
                    self.published(published)
            return
        publication = self._registry.add(item.output, item.router, "")
        for address, request in work.askers:
            self._cloud.answer(address, self._issued(item, request))
        if isinstance(publication, Publication):
            self._cloud.agenda.add(Published(publication))

    def _issued(self, item: FunctionItem, request: int) -> Issued:
        parts = tuple(f"{part.publisher}/{part.variable}" for part in item.parts)
        place = f"{self._cloud.role}/{item.router}"
        return Issued(id=request, variable_id=item.output.variable_id, place=place, parts=parts)

    def failed(self, work: _Work, reason: str, code: str) -> None:
        if work.over:
            return
        work.over = True
        self._works.pop(work.item.output.variable_id, None)
        if not work.item.placed:
            self._undo(work.item, reason)
        for address, request in work.askers:
            self._cloud.fail(address, request, code, reason)

    def next_tick(self) -> int:
        works = min((work.deadline_ns for work in self._works.values()), default=NEVER)
        return min(works, min(self._missing.values(), default=NEVER))

    def tick(self, now_ns: int) -> None:
        for work in [work for work in self._works.values() if work.deadline_ns <= now_ns]:
            late = f"router {work.item.router} did not start the function in time"
            self.failed(work, late if not work.item.remote else f"{late}, or other clouds its inputs", "unavailable")
        for key in [key for key, due_ns in self._missing.items() if due_ns <= now_ns]:
            del self._missing[key]
            item = self.by_id.get(key[0])
            if item is not None and key[1] not in self._owned(item):
                self._remote_subscriptions.seek_input(self._remote_drafts(item, [key[1]])[0])

    def _undo(self, item: FunctionItem, reason: str) -> None:
        """Nothing is left of it."""
        variable_id = item.output.variable_id
        work = self._works.pop(variable_id, None)
        if work is not None:
            work.over = True
            for address, request in work.askers:
                self._cloud.fail(address, request, "stale", reason)
        publication = self._registry.by_id.get(variable_id)
        if publication is not None:
            self._cloud.agenda.add(Withdraw(publication, reason))
        self._cloud.allocator.unpublish(variable_id)
        for subscription in list(self._owned(item).values()):
            if subscription.remote:
                self._remote_subscriptions.end(subscription, reason)
            else:
                self._subscriptions.end(subscription, reason)
        self._remote_parts.end(item.creator, item.parts)
        self.pending_removals.remove(item.output, (item.router,))
        self._cloud.outbox.drop("function", str(variable_id))
        del self.by_id[variable_id]
        del self.by_name[item.function.publisher, item.function.variable]
        for each in item.runs.inputs:
            self._by_input.get((each.publisher, each.variable), {}).pop(variable_id, None)
        if publication is None:
            self._cloud.agenda.add(PublisherReleased(item.function.publisher))
        self._cloud.forget(variable_id)

    def _owned(self, item: FunctionItem) -> dict[Name, Subscription]:
        """Its subscriptions by the names of its inputs."""
        return self._subscriptions.by_owner.get(f"function:{item.output.variable_id}", {})

    def _index(self, item: FunctionItem) -> None:
        variable_id = item.output.variable_id
        self.by_id[variable_id] = item
        self.by_name[item.function.publisher, item.function.variable] = item
        for each in item.runs.inputs:
            self._by_input.setdefault((each.publisher, each.variable), {})[variable_id] = None
        self._cloud.refer(variable_id)

    # inputs that come back

    def fed_by(self, name: tuple[str, str]) -> list[str]:
        """The names of the functions that have this variable as an input."""
        outputs = [self.by_id[number].output for number in self._by_input.get(name, ())]
        return [f"{output.publisher}/{output.variable}" for output in outputs]

    def made_of(self, name: Name) -> tuple[Name, ...]:
        """All that the function of that output is computed from, also through others of this cloud; nothing if none."""
        found: dict[Name, None] = {}
        left = [name]
        while left:
            item = self.by_name.get(left.pop())
            needed = [(each.publisher, each.variable) for each in item.function.inputs] if item is not None else []
            left += [each for each in needed if each not in found]
            found |= dict.fromkeys(needed)
        return tuple(found)

    def published(self, publication: Publication) -> None:
        """An input that was withdrawn is published again: functions that had it get it again."""
        variable = publication.variable
        name = (variable.publisher, variable.variable)
        for variable_id in list(self._by_input.get(name, ())):
            item = self.by_id[variable_id]
            if item.placed and name not in self._owned(item) and variable_id not in self._works:
                self._feed(item, publication, name)

    def _feed(self, item: FunctionItem, publication: Publication, name: tuple[str, str]) -> None:
        inputs = tuple(
            publication.variable if (each.publisher, each.variable) == name else each for each in item.inputs
        )
        asked = next(each for each in item.runs.inputs if (each.publisher, each.variable) == name)
        draft = self._draft(item.output.variable_id, item.router, item.runs, asked)
        if check(item.runs, inputs) or self._subscriptions.reserve(draft, publication) is not None:
            return  # of another type now, or no room: the function goes on without it
        item.inputs, item.inputs_confirmed = inputs, False
        self._cloud.outbox.put("function", str(item.output.variable_id), item)
        self._begin(item, [draft], {})


def _key(item: FunctionItem) -> Key:
    return item.output.variable_id, FUNCTION


def _placed_function(item: FunctionItem) -> PlacedFunction:
    return PlacedFunction(item.output, item.runs, item.inputs)


def _cycle(function: Function, functions: Mapping[tuple[str, str], FunctionItem]) -> str:
    """The cycle from the output of a function back to itself through others, fed now or not; empty if there is none.

    A function stays when an input of it is withdrawn and gets it again when that is published anew, by whomever.
    """
    output = (function.publisher, function.variable)
    reached: dict[tuple[str, str], tuple[str, str]] = {}  # what is needed -> for what
    left = deque((output, each) for each in function.inputs)
    while left:
        of, each = left.popleft()
        name = (each.publisher, each.variable)
        if name in reached:
            continue
        reached[name] = of
        if name == output:
            cycle = [output, of]
            while cycle[-1] != output:
                cycle.append(reached[cycle[-1]])
            return " of ".join("/".join(step) for step in cycle)
        if name in functions:
            left.extend((name, further) for further in functions[name].function.inputs)
    return ""
