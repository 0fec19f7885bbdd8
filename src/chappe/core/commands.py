"""Commands of brokers: they drive the table of any node, fenced by (epoch, command) (GS-073, GS-160)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from chappe.core.modes import Modes
from chappe.core.paths import PathTable
from chappe.engine._engine import Engine
from chappe.wire import control, management
from chappe.wire.constants import MODES

TEMPORARY = 16  # the slot of the temporary table
REMEMBERED = 4096  # answers kept for repeated commands; a broker has far fewer under way
SLICE = 2_000  # entries of the table that one call of `work` prepares

Answer = control.Done | control.Failed
Configure = Callable[[Sequence[management.Channel]], str]


class Functions(Protocol):
    """Condensation functions that run beside this node."""

    def place(self, command: management.Place) -> str:
        """Run it; the answer says why not, or is empty."""

    def displace(self, variable_id: int) -> str:
        """Stop it; one that is not there is no error."""

    def clear(self) -> None:
        """Stop all."""

    def may(self, action: str, publisher: str, variable: str) -> bool:
        """Whether their worker may register or watch a variable."""


@dataclass(slots=True)
class _Change:
    """A mode change whose temporary table is being built."""

    command: control.PrepareMode
    old: int
    start: int = 0


class Commands:
    """Carries out each command once; a repeated one gets the same answer, one of an older epoch is refused.

    `configure(channels)` gives this node these links; its answer says what is wrong with them, or is empty.
    """

    def __init__(
        self, engine: Engine, paths: PathTable, configure: Configure, functions: Functions | None = None
    ) -> None:
        self.epoch = 0
        self.paths = paths
        self.modes = Modes(engine.status.slot)
        self.functions = functions
        self.notices: list[management.ModeState] = []  # what all clients must know
        self._engine = engine
        self._configure = configure
        self._prepared = -1  # the mode that the temporary table leads to
        self._answers: OrderedDict[int, Answer] = OrderedDict()
        self._forgotten = 0  # highest command whose answer is no longer kept
        self._change: _Change | None = None

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return self._change is not None

    def fence(self, epoch: int) -> bool:
        """A broker of that epoch leads: commands of older ones are over. False if it is older itself."""
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self._change = None  # its broker is over
            self.epoch = epoch
            self._answers.clear()
            self._forgotten = 0
        return True

    def receive(self, command: control.Command, now_ns: int) -> Answer | None:
        """Carry it out, or say why not; None: `work` will answer. The answer carries the id of this request."""
        if not self.fence(command.epoch):
            return _failed(command, "stale", f"epoch {command.epoch} is over, this node is at {self.epoch}")
        before = self._answers.get(command.command)
        if before is not None:
            return _repeated(before, command.id)
        if command.command <= self._forgotten:
            return _failed(command, "stale", f"command {command.command} is too old to be repeated")
        if isinstance(command, control.PrepareMode):
            return self._prepare(command)
        answer = self._carry_out(command, now_ns)
        self._remember(command, answer)
        return answer

    def tick(self, now_ns: int) -> None:
        """Time-outs of mode changes."""
        self._notify(self.modes.tick(now_ns))

    def next_tick(self) -> int:
        """When a mode change has waited for its commit for too long."""
        return self.modes.next_tick()

    def work(self) -> Answer | None:
        """Build the next slice of a temporary table; the answer to its command when it is complete and in use."""
        change = self._change
        if change is None:
            return None
        status = self._engine.status
        change.start = status.prepare(change.old, change.command.mode, change.start, SLICE)
        if change.start >= 0:
            return None
        status.slot = TEMPORARY
        self._prepared = change.command.mode
        self._change = None
        answer = control.Done(id=change.command.id)
        self._remember(change.command, answer)
        return answer

    def _prepare(self, command: control.PrepareMode) -> Answer | None:
        status = self._engine.status
        if self._change is not None:
            if self._change.command.command != command.command:
                return _failed(command, "failed", f"the change to mode {self._change.command.mode} is being prepared")
            self._change.command = command  # repeated: the newest request gets the answer
            return None
        if not 0 <= command.mode < MODES:
            return _failed(command, "invalid", f"mode {command.mode} is not in 0 .. {MODES - 1}")
        if status.slot == TEMPORARY and command.mode == self._prepared:
            answer = control.Done(id=command.id)  # a broker that has taken over goes through the phases again
            self._remember(command, answer)
            return answer
        if status.slot == TEMPORARY:
            return _failed(command, "failed", "a mode change is under way; finish it with SetMode")
        self._change = _Change(command, status.slot)
        return None

    def _remember(self, command: control.Command, answer: Answer) -> None:
        self._answers[command.command] = answer
        if len(self._answers) > REMEMBERED:
            number, _ = self._answers.popitem(last=False)
            self._forgotten = max(self._forgotten, number)

    def _carry_out(self, command: control.Command, now_ns: int) -> Answer:
        try:
            problem = self._apply(command, now_ns)
        except (ValueError, KeyError, OverflowError) as error:
            problem = str(error.args[0] if error.args else error)
        return _failed(command, "invalid", problem) if problem else control.Done(id=command.id)

    def _apply(self, command: control.Command, now_ns: int) -> str:
        """Do it; the answer says what is wrong, or is empty."""
        match command:
            case management.Setup():
                self.paths.setup(command.paths)
            case management.Teardown():
                self.paths.teardown(command.paths, now_ns)
            case management.Flood():
                self.paths.flood(command.variable, command.levels, now_ns)
            case management.Reset():
                self.paths.reset(now_ns)
                if self.functions is not None:
                    self.functions.clear()
            case management.Configure():
                return self._configure(command.channels)
            case management.Place() | management.Displace():
                return self._function(command, now_ns)
            case control.SetMode() | management.InformMode() | management.CommitMode():
                return self._mode(command, now_ns)
            case _:
                return f"{type(command).__name__} is not a table command"
        return ""

    def _mode(self, command: control.SetMode | management.InformMode | management.CommitMode, now_ns: int) -> str:
        if not 0 <= command.mode < MODES:
            return f"mode {command.mode} is not in 0 .. {MODES - 1}"
        match command:
            case management.InformMode():
                self._notify(self.modes.inform(command.mode))
            case management.CommitMode():
                self._notify(self.modes.commit(command.mode))
            case control.SetMode():
                self._change = None
                self._engine.status.slot = command.mode
                self._notify(self.modes.switched(command.mode, now_ns))
        return ""

    def _function(self, command: management.Place | management.Displace, now_ns: int) -> str:
        if self.functions is None:
            return "this node runs no functions"
        if isinstance(command, management.Displace):
            problem = self.functions.displace(command.variable_id)
            self.paths.displace(command.variable_id, now_ns)
            return problem
        self.paths.place(command.output)
        problem = self.functions.place(command)
        if problem:
            self.paths.displace(command.output.variable_id, now_ns)
        return problem

    def _notify(self, notice: management.ModeState | None) -> None:
        if notice is not None:
            self.notices.append(notice)


def _failed(command: control.Command, code: str, reason: str) -> control.Failed:
    return control.Failed(id=command.id, code=code, reason=f"{type(command).__name__}: {reason}")


def _repeated(answer: Answer, request: int) -> Answer:
    if isinstance(answer, control.Done):
        return control.Done(id=request)
    return control.Failed(id=request, code=answer.code, reason=answer.reason)
