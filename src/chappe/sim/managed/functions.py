"""Condensation functions of a simulated router: what its worker process does, in virtual time (GS-133)."""

from __future__ import annotations

import math
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
    """Runs what brokers place at a router. `connect()` is a new client of the router, let in as its worker.

    The worker has what functions need at the moment and no more; it leaves with the last of them.
    """

    def __init__(self, clock: Clock, connect: Callable[[], Client]) -> None:
        self._clock = clock
        self._connect = connect
        self._worker: Client | None = None
        self._due: Timer | None = None  # when the worker looks at what has changed
        self._running: dict[int, _Function] = {}
        self._published: dict[int, Variable] = {}  # outputs that the worker registered
        self._watched: dict[int, int] = {}  # interval of each input that it watches
        self._asked: dict[int, int] = {}  # input by request

    def __len__(self) -> int:
        return len(self._running)

    # --- commands of the broker

    def place(self, command: management.Place) -> str:
        """Run a function, in place of the one that has this output; the answer says why not, or is empty."""
        problem = check(command.function, command.inputs)
        if problem:
            return problem
        known = self._running.get(command.output.variable_id)
        if known is not None and known.same(command):
            return ""
        self.displace(command.output.variable_id)
        self._running[command.output.variable_id] = _Function(self._clock, command, self._publish)
        self._look(START_S)
        return ""

    def displace(self, variable_id: int) -> str:
        """Stop the function with this output; one that is not there is no error."""
        function = self._running.pop(variable_id, None)
        if function is not None:
            function.stop()
            self._look(0)
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

    def _look(self, delay_s: float) -> None:
        if self._due is None or not self._due.waits:
            self._due = self._clock.after(delay_s, self._follow)

    def _attached(self, client: Client) -> None:
        """The router knows nothing of this worker."""
        self._published, self._watched, self._asked = {}, {}, {}
        self._look(0)

    def _follow(self) -> None:
        """Ask for what functions need, and give back what none of them has any more."""
        if not self._running:
            if self._worker is not None:
                self._worker.leave()
            return
        if self._worker is None:
            self._worker = self._connect()
            self._worker.on_answer, self._worker.on_value = self._answered, self._arrived
            self._worker.on_attach = self._attached
        elif not self._worker.attached:
            self._worker.attach()
            return
        self._follow_inputs(self._worker)
        self._follow_outputs(self._worker)
        for function in self._running.values():
            function.start()

    def _follow_inputs(self, worker: Client) -> None:
        """One subscription a variable, at an interval that has all that functions ask for."""
        variables: dict[int, Variable] = {}
        intervals: dict[int, int] = {}
        for function in self._running.values():
            for variable, asked in zip(function.inputs, function.asked, strict=True):
                number = variable.variable_id
                known = intervals.get(number, asked.interval_ns)
                variables[number] = variable
                intervals[number] = math.gcd(known, asked.interval_ns) if known and asked.interval_ns else 0
        for number in self._watched.keys() - intervals.keys():
            del self._watched[number]
            worker.request(control.Unwatch, variable_id=number)
        for number, interval_ns in intervals.items():
            if self._watched.get(number) != interval_ns:
                self._watched[number] = interval_ns
                variable = variables[number]
                request = worker.request(
                    control.Watch, publisher=variable.publisher, variable=variable.variable, interval_ns=interval_ns
                )
                self._asked[request] = number

    def _follow_outputs(self, worker: Client) -> None:
        for number, output in list(self._published.items()):
            function = self._running.get(number)
            if function is None or function.output != output:
                del self._published[number]
                worker.request(control.Withdraw, variable_id=number)
        for number, function in self._running.items():
            if number not in self._published:
                output = self._published[number] = function.output
                worker.request(
                    control.Register, publisher=output.publisher, variable=output.variable, type=output.type,
                    rate_num=output.rate_num, rate_den=output.rate_den, priority=output.priority,
                    options=output.options,
                )  # fmt: skip

    def _answered(self, client: Client, message: Message) -> None:
        match message:
            case management.Withdrawn():
                self._again(message.variable_id)
            case control.Watching():
                self._asked.pop(message.id, None)
            case Failed():
                number = self._asked.pop(message.id, None)
                if number is not None:  # its path is not here yet
                    self._again(number)

    def _again(self, number: int) -> None:
        if self._watched.pop(number, None) is not None:
            self._look(AGAIN_S)

    def _arrived(self, client: Client, arrival: ValueArrival) -> None:
        number, created = arrival.record.variable, arrival.record.created
        for function in self._running.values():
            if function.takes(number, created):
                function.feed(number, Result(arrival.record.value_as(function.kinds[number]), created))  # type: ignore[arg-type]

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
        self.output, self.inputs, self.asked = command.output, command.inputs, command.function.inputs
        self.kinds = {variable.variable_id: variable.type for variable in command.inputs}
        self._function = command.function
        self._clock = clock
        self._publish = publish
        self._condensation = Condensation(command.function, command.output, command.inputs)
        self._positions = {variable.variable_id: at for at, variable in enumerate(command.inputs)}
        self._timer: Timer | None = None
        self._state = "waiting"

    def same(self, command: management.Place) -> bool:
        """Whether the command is to run just this."""
        return (command.output, command.function, command.inputs) == (self.output, self._function, self.inputs)

    def start(self) -> None:
        """Its output and inputs were asked for."""
        if self._state == "waiting":
            self._state = "running"
            self._wait()

    def stop(self) -> None:
        self._state = "stopped"
        if self._timer is not None:
            self._timer.cancel()

    def takes(self, variable_id: int, created: int) -> bool:
        """Whether an event of a variable with that stamp is one of those that it asked for."""
        at = self._positions.get(variable_id)
        if at is None or self._state != "running":
            return False
        return covers(self.inputs[at], self.asked[at].interval_ns, created)

    def feed(self, variable_id: int, event: Result) -> None:
        if self._condensation.hears(variable_id):
            self._give(self._condensation.feed(variable_id, event.value, event.created, self._clock.wall_ns))
        else:
            self._condensation.refresh([(self._positions[variable_id], event)])

    def _wait(self) -> None:
        """Be called when a result is due by time."""
        deadline_ns = self._condensation.deadline_ns()
        if deadline_ns is not None and self._state == "running":
            self._timer = self._clock.at(self._clock.now_ns + deadline_ns - self._clock.wall_ns, self._tick)

    def _tick(self) -> None:
        self._give(self._condensation.tick(self._clock.wall_ns))
        self._wait()

    def _give(self, result: Result | None) -> None:
        if result is not None and self._state == "running":
            self._publish(self.output, result)
