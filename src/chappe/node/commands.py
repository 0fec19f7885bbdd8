"""Table commands: brokers drive the table of any node, fenced by (epoch, command) (GS-073, GS-160)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from chappe.engine._engine import Engine
from chappe.wire import control

MODES = 16
TEMPORARY = 16  # the slot of the temporary table
REMEMBERED = 4096  # answers kept for repeated commands; a broker has far fewer under way
MAX_BROKER_PATH = (1 << 20) - 1

SLICE = 2_000  # entries of the table that one call of `work` prepares

Answer = control.Done | control.Failed


@dataclass(slots=True)
class _Change:
    """A mode change whose temporary table is being built."""

    command: control.PrepareMode
    old: int
    start: int = 0


class Commands:
    """Carries out each command once; a repeated one gets the same answer, one of an older epoch is refused."""

    def __init__(self, engine: Engine, link_port: Callable[[str], int | None]) -> None:
        self.epoch = 0
        self._engine = engine
        self._link_port = link_port
        self._answers: OrderedDict[int, Answer] = OrderedDict()
        self._forgotten = 0  # highest command whose answer is no longer kept
        self._change: _Change | None = None

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return self._change is not None

    def receive(self, command: control.Command) -> Answer | None:
        """Carry it out, or say why not; None: `work` will answer. The answer carries the id of this request."""
        if command.epoch < self.epoch:
            return _failed(command, "stale", f"epoch {command.epoch} is over, this node is at {self.epoch}")
        if command.epoch > self.epoch:
            self._change = None  # its broker is over
            self.epoch = command.epoch
            self._answers.clear()
            self._forgotten = 0
        before = self._answers.get(command.command)
        if before is not None:
            return _repeated(before, command.id)
        if command.command <= self._forgotten:
            return _failed(command, "stale", f"command {command.command} is too old to be repeated")
        if isinstance(command, control.PrepareMode):
            return self._prepare(command)
        answer = self._carry_out(command)
        self._remember(command, answer)
        return answer

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
        if status.slot == TEMPORARY:
            return _failed(command, "failed", "a mode change is under way; finish it with SetMode")
        self._change = _Change(command, status.slot)
        return None

    def _remember(self, command: control.Command, answer: Answer) -> None:
        self._answers[command.command] = answer
        if len(self._answers) > REMEMBERED:
            number, _ = self._answers.popitem(last=False)
            self._forgotten = max(self._forgotten, number)

    def _carry_out(self, command: control.Command) -> Answer:
        try:
            problem = self._apply(command)
        except (ValueError, KeyError, OverflowError) as error:
            problem = str(error.args[0] if error.args else error)
        return _failed(command, "invalid", problem) if problem else control.Done(id=command.id)

    def _apply(self, command: control.Command) -> str:
        """Change the table; the answer says what is wrong, or is empty."""
        status = self._engine.status
        match command:
            case control.SetVariable():
                return self._set_variable(command)
            case control.SetupPath():
                return self._setup_path(command)
            case control.DropVariable():
                status.drop_variable(command.variable_id)
            case control.TerminatePath():
                status.terminate_path(command.variable_id, command.path)
            case control.SetFlooding():
                status.set_flooding(command.variable_id, command.level, command.modes)
            case control.ClearFlooding():
                status.clear_flooding(command.variable_id, command.modes)
            case control.SetMode():
                return self._set_mode(command)
            case _:
                return f"{type(command).__name__} is not a table command"
        return ""

    def _set_variable(self, command: control.SetVariable) -> str:
        ports = []
        for name in command.inputs:
            port = self._link_port(name)
            if port is None:
                return f"there is no link named {name!r}"
            ports.append(port)
        self._engine.status.set_variable(command.variable_id, command.rate_num, command.rate_den, inputs=ports or None)
        return ""

    def _set_mode(self, command: control.SetMode) -> str:
        if not 0 <= command.mode < MODES:
            return f"mode {command.mode} is not in 0 .. {MODES - 1}"
        self._change = None
        self._engine.status.slot = command.mode
        return ""

    def _setup_path(self, command: control.SetupPath) -> str:
        port = self._link_port(command.link)
        if port is None:
            return f"there is no link named {command.link!r}"
        if not 0 < command.path <= MAX_BROKER_PATH:
            return f"path {command.path} is not in 1 .. {MAX_BROKER_PATH}"
        for what, values in (("intervals_ns", command.intervals_ns), ("priorities", command.priorities)):
            if len(values) not in (1, 16):
                return f"{what} has {len(values)} entries; give one for all modes, or 16"
        self._engine.status.setup_path(
            command.variable_id, port, command.path, list(command.intervals_ns), list(command.priorities), command.modes
        )
        return ""


def _failed(command: control.Command, code: str, reason: str) -> control.Failed:
    return control.Failed(id=command.id, code=code, reason=f"{type(command).__name__}: {reason}")


def _repeated(answer: Answer, request: int) -> Answer:
    if isinstance(answer, control.Done):
        return control.Done(id=request)
    return control.Failed(id=request, code=answer.code, reason=answer.reason)
