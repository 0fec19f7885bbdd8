"""Condensation functions of a simulated router: what its worker process does, in virtual time (GS-133)."""

from __future__ import annotations

from collections.abc import Callable

from chappe.sim.client import Client, ValueArrival
from chappe.sim.clock import Clock, Timer
from chappe.status.condensation.functions import Condensation, Result, check, covers
from chappe.wire import control, management
from chappe.wire.base import Failed, Message, Variable
from chappe.wire.status import record

START_S = 0.2  # until a worker runs
AGAIN_S = 0.5  # after an input that is not here yet


class Functions:
    """Runs what brokers place at a router. `connect()` is a new client of the router, let in as its worker."""

    def __init__(self, clock: Clock, connect: Callable[[], Client]) -> None:
        self._clock = clock
        self._connect = connect
        self._worker: Client | None = None
        self._starting: Timer | None = None
        self._running: dict[int, _Function] = {}
        self._asked: dict[int, tuple[_Function, int]] = {}  # function and position of an input, by request

    def __len__(self) -> int:
        return len(self._running)

    # --- commands of the broker

    def place(self, command: management.Place) -> str:
        """Run a function, in place of the one that has this output; the answer says why not, or is empty."""
        problem = check(command.function, command.inputs)
        if problem:
            return problem
        number = command.output.variable_id
        known = self._running.get(number)
        if known is not None and known.command == command:
            return ""
        self.displace(number)
        self._running[number] = _Function(self._clock, command, self._publish)
        if self._starting is None:
            self._starting = self._clock.after(START_S, self._begin)
        return ""

    def displace(self, variable_id: int) -> str:
        """Stop the function with this output; one that is not there is no error."""
        function = self._running.pop(variable_id, None)
        if function is not None:
            function.stop()
        return ""

    def clear(self) -> None:
        """Stop all."""
        for variable_id in list(self._running):
            self.displace(variable_id)

    def may(self, action: str, publisher: str, variable: str) -> bool:
        """Whether the worker may register or watch a variable: the outputs and inputs of what was placed, no others."""
        named = (
            [function.output for function in self._running.values()]
            if action == "register"
            else [each for function in self._running.values() for each in function.inputs]
        )
        return any((each.publisher, each.variable) == (publisher, variable) for each in named)

    # --- the worker

    def _begin(self) -> None:
        """Ask for what functions need that were placed since."""
        self._starting = None
        if not self._running:
            return
        if self._worker is None:
            self._worker = self._connect()
            self._worker.on_answer, self._worker.on_value = self._answered, self._arrived
            self._worker.on_attach = lambda client: self._begin()
        elif not self._worker.attached:
            self._worker.attach()
            return
        for function in self._running.values():
            if not function.begun:
                self._ask(function)

    def _ask(self, function: _Function) -> None:
        assert self._worker is not None
        function.begun = True
        output = function.output
        self._worker.request(
            control.Register, publisher=output.publisher, variable=output.variable, type=output.type,
            rate_num=output.rate_num, rate_den=output.rate_den, priority=output.priority, options=output.options,
        )  # fmt: skip
        for at in range(len(function.inputs)):
            self._watch(function, at)
        function.wait()

    def _watch(self, function: _Function, at: int) -> None:
        if self._worker is None or not self._worker.attached or function.stopped:
            return
        variable, asked = function.inputs[at], function.command.function.inputs[at]
        number = self._worker.request(
            control.Watch, publisher=variable.publisher, variable=variable.variable, interval_ns=asked.interval_ns
        )
        self._asked[number] = function, at

    def _answered(self, client: Client, message: Message) -> None:
        match message:
            case management.Withdrawn():
                for function in self._running.values():
                    for at, variable in enumerate(function.inputs):
                        if variable.variable_id == message.variable_id:
                            self._clock.after(AGAIN_S, self._watch, function, at)
            case control.Watching():
                self._asked.pop(message.id, None)
            case Failed():
                waits = self._asked.pop(message.id, None)
                if waits is not None:  # its path is not here yet
                    self._clock.after(AGAIN_S, self._watch, *waits)

    def _arrived(self, client: Client, arrival: ValueArrival) -> None:
        number, created = arrival.record.variable, arrival.record.created
        for function in self._running.values():
            kind = function.kinds.get(number)
            if kind is not None:
                function.feed(number, Result(arrival.record.value_as(kind), created))  # type: ignore[arg-type]

    def _publish(self, output: Variable, result: Result) -> None:
        """To the router, and to functions of this worker: a router sends nothing back to where it came from."""
        if self._worker is None or not self._worker.attached:
            return
        self._worker.publish_records(record(result.created, output.variable_id, result.value).encode())
        for function in self._running.values():
            if function.takes(output.variable_id, result.created):
                function.feed(output.variable_id, result)


class _Function:
    """One function at work; `publish(output, result)` takes what it computes."""

    def __init__(self, clock: Clock, command: management.Place, publish: Callable[[Variable, Result], None]) -> None:
        self.command = command
        self.output, self.inputs = command.output, command.inputs
        self.kinds = {variable.variable_id: variable.type for variable in command.inputs}
        self.begun = False  # its output and inputs were asked for
        self.stopped = False
        self._clock = clock
        self._publish = publish
        self._condensation = Condensation(command.function, command.output, command.inputs)
        self._positions = {variable.variable_id: at for at, variable in enumerate(command.inputs)}
        self._timer: Timer | None = None

    def takes(self, variable_id: int, created: int) -> bool:
        """Whether an event of a variable with that stamp is one of those that it asked for."""
        at = self._positions.get(variable_id)
        return at is not None and covers(self.inputs[at], self.command.function.inputs[at].interval_ns, created)

    def feed(self, variable_id: int, event: Result) -> None:
        if self._condensation.hears(variable_id):
            self._give(self._condensation.feed(variable_id, event.value, event.created, self._clock.wall_ns))
        else:
            self._condensation.refresh([(self._positions[variable_id], event)])

    def wait(self) -> None:
        """Be called when a result is due by time."""
        deadline_ns = self._condensation.deadline_ns()
        if deadline_ns is not None and not self.stopped:
            self._timer = self._clock.at(self._clock.now_ns + deadline_ns - self._clock.wall_ns, self._due)

    def _due(self) -> None:
        self._give(self._condensation.tick(self._clock.wall_ns))
        self.wait()

    def _give(self, result: Result | None) -> None:
        if result is not None and not self.stopped:
            self._publish(self.output, result)

    def stop(self) -> None:
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
