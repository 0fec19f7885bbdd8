"""Commands of brokers: each carried out once, in the right epoch (GS-073, GS-160)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.core.commands import REMEMBERED, SLICE, TEMPORARY, Commands
from chappe.core.paths import PathTable
from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.wire import control, management
from chappe.wire.control import Done, Failed, Variable
from chappe.wire.management import Channel, CommitMode, InformMode, ModeState, Path

NOW = 1_000_000_000
SPEED = Variable(5, "plant", "speed", "float", 1, 1_000_000, 3, 0)


def path(number: int = 9, target: str = "east", intervals: tuple[int, ...] = (0,), variable: Variable = SPEED) -> Path:
    return Path(variable, number, "", target, intervals, (3,), 0xFFFF)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def commands(engine: Engine) -> Commands:
    ports = {"east": engine.open_port(peer=True)}
    variables = Variables(engine, 3, (), ports.get, 60 * NOW)
    return Commands(engine, PathTable(engine, variables, ports.get), lambda channels: "")


class Sender:
    """Numbers its commands like a broker."""

    def __init__(self, commands: Commands, epoch: int = 1) -> None:
        self.commands, self.epoch, self.number = commands, epoch, 0

    def __call__(self, kind: type[control.Command], **fields: Any) -> Any:
        self.number += 1
        command = kind(id=100 + self.number, epoch=self.epoch, command=self.number, **fields)
        return self.commands.receive(command, NOW)


@pytest.mark.spec("GS-073")
def test_a_broker_sets_and_changes_paths_in_place(engine: Engine, commands: Commands) -> None:
    send = Sender(commands)
    assert send(management.Setup, paths=(path(),)) == Done(id=101)
    changed = Path(SPEED, 9, "", "east", (4_000_000,), (1,), 0xFFFF)
    assert isinstance(send(management.Setup, paths=(changed,)), Done)
    described = engine.status.describe(5)
    assert len(described["paths"]) == 1
    assert list(described["modes"][0].values()) == [{"intervals": [4], "class": 1}]
    slower = Variable(5, "plant", "speed", "float", 1, 2_000_000, 3, 0)
    assert isinstance(send(management.Setup, paths=(path(intervals=(4_000_000,), variable=slower),)), Done)
    assert engine.status.describe(5)["rate"] == (1, 2_000_000)
    assert list(engine.status.describe(5)["modes"][0].values()) == [{"intervals": [2], "class": 2}]
    assert isinstance(send(management.Teardown, paths=((5, 9), (5, 10), (77, 1))), Done)
    assert engine.status.entries() == 0


def test_a_repeated_command_gets_the_same_answer_and_changes_nothing(engine: Engine, commands: Commands) -> None:
    down = management.Teardown(id=2, epoch=1, command=2, paths=((5, 9),))
    commands.receive(management.Setup(id=1, epoch=1, command=1, paths=(path(),)), NOW)
    assert commands.receive(down, NOW) == Done(id=2)
    commands.receive(management.Setup(id=3, epoch=1, command=3, paths=(path(),)), NOW)
    down.id = 4
    assert commands.receive(down, NOW) == Done(id=4)
    assert engine.status.entries() == 1


def test_a_broker_of_an_older_epoch_changes_nothing(engine: Engine, commands: Commands) -> None:
    old, new = Sender(commands, 1), Sender(commands, 2)
    old(management.Setup, paths=(path(),))
    new(management.Setup, paths=(path(10),))
    answer = old(management.Teardown, paths=((5, 9),))
    assert isinstance(answer, Failed)
    assert (answer.code, len(commands.paths)) == ("stale", 2)
    assert commands.fence(3)
    answer = new(management.Teardown, paths=((5, 9),))
    assert isinstance(answer, Failed)
    assert (answer.code, len(commands.paths), commands.fence(2)) == ("stale", 2, False)


def test_a_command_too_old_to_remember_is_refused_instead_of_repeated(commands: Commands) -> None:
    for number in range(1, REMEMBERED + 10):
        commands.receive(management.Setup(id=1, epoch=1, command=number, paths=(path(),)), NOW)
    answer = commands.receive(management.Setup(id=1, epoch=1, command=3, paths=(path(),)), NOW)
    assert isinstance(answer, Failed)
    assert answer.code == "stale"


@pytest.mark.parametrize(
    ("kind", "fields", "word"),
    [
        (management.Setup, {"paths": (path(variable=Variable(0, "p", "v", "int", 0, 1, 3, 0)),)}, "p/v"),
        (management.Setup, {"paths": (path(variable=Variable(6, "p", "v", "int", 1, 0, 3, 0)),)}, "rate"),
        (management.Setup, {"paths": (path(target="nowhere"),)}, "no link named 'nowhere'"),
        (management.Setup, {"paths": (Path(SPEED, 1, "north", "", (0,), (3,), 1),)}, "'north'"),
        (management.Setup, {"paths": (Path(SPEED, 1, "east", "east", (0,), (3,), 1),)}, "goes back"),
        (management.Setup, {"paths": (path(intervals=(0, 0)),)}, "2 entries"),
        (management.Setup, {"paths": (path(intervals=(-1,)),)}, "interval -1"),
        (management.Setup, {"paths": (path(1 << 20),)}, "number"),
        (management.Setup, {"paths": (Path(SPEED, 1, "", "east", (0,), (3,), 0),)}, "mode"),
        (management.Setup, {"paths": (path(variable=Variable(5, "p", "v", "int", 0, 1, 3, 0)),)}, "has this id"),
        (management.Flood, {"variable": SPEED, "levels": (999,) + (0,) * 15}, "999"),
        (management.Flood, {"variable": SPEED, "levels": (1,)}, "16"),
        (control.SetMode, {"mode": 16}, "mode 16"),
        (InformMode, {"mode": 16}, "mode 16"),
        (CommitMode, {"mode": -1}, "mode -1"),
        (control.PrepareMode, {"mode": -1}, "mode -1"),
        (management.Displace, {"variable_id": 5}, "functions"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why_and_changes_nothing(
    engine: Engine, commands: Commands, kind: type[control.Command], fields: dict[str, Any], word: str
) -> None:
    send = Sender(commands)
    send(management.Setup, paths=(path(),))
    before = engine.status.describe(5)
    answer = send(kind, **fields)
    assert isinstance(answer, Failed)
    assert answer.code == "invalid"
    assert kind.__name__ in answer.reason
    assert word in answer.reason
    assert (engine.status.describe(5), engine.status.entries(), len(commands.paths)) == (before, 1, 1)


def test_the_shell_says_what_is_wrong_with_channels(engine: Engine, commands: Commands) -> None:
    commands._configure = lambda channels: f"{channels[0].peer} is bad"
    answer = Sender(commands)(management.Configure, channels=(Channel("east"),))
    assert isinstance(answer, Failed)
    assert answer.reason == "Configure: east is bad"


@pytest.mark.spec("GS-112")
def test_a_mode_change_is_prepared_in_slices_and_then_made(engine: Engine, commands: Commands) -> None:
    send = Sender(commands)
    for number in range(1, 2 * SLICE + 10):
        engine.status.set_variable(number, 1, 1_000_000)
    assert send(control.PrepareMode, mode=3) is None
    assert commands.busy
    slices, answer = 0, None
    while answer is None:
        assert engine.status.slot == 0
        answer = commands.work()
        slices += 1
    assert slices == 3
    assert answer == Done(id=101)
    assert (engine.status.slot, commands.busy) == (TEMPORARY, False)
    assert isinstance(send(control.PrepareMode, mode=4), Failed)
    assert isinstance(send(control.PrepareMode, mode=3), Done)
    assert isinstance(send(control.SetMode, mode=3), Done)
    assert engine.status.slot == 3


def test_flooding_is_set_by_mode_and_cleared(engine: Engine, commands: Commands) -> None:
    send = Sender(commands)
    assert isinstance(send(management.Flood, variable=SPEED, levels=(2, 1) + (0,) * 14), Done)
    assert engine.status.describe(5)["flooding"] == {0: 2, 1: 1}
    assert isinstance(send(management.Flood, variable=SPEED, levels=(0, 3) + (0,) * 14), Done)
    assert engine.status.describe(5)["flooding"] == {1: 3}
    assert isinstance(send(management.Flood, variable=SPEED, levels=(0,) * 16), Done)
    assert (engine.status.entries(), commands.paths.empty) == (0, True)


@pytest.mark.spec("GS-115")
def test_clients_are_told_before_and_after_a_change_and_not_in_between(commands: Commands) -> None:
    send = Sender(commands)
    send(InformMode, mode=2)
    assert commands.notices == [ModeState(mode=0, next=2)]
    assert send(control.PrepareMode, mode=2) is None
    while commands.busy:
        commands.work()
    send(control.SetMode, mode=2)
    assert (commands.notices[1:], commands.modes.mode) == ([], 0)
    send(CommitMode, mode=2)
    assert commands.notices[1:] == [ModeState(mode=2, next=2)]
    send(CommitMode, mode=2)
    assert len(commands.notices) == 2


def test_a_router_that_is_told_the_mode_tells_its_clients_at_once(commands: Commands) -> None:
    Sender(commands)(control.SetMode, mode=5)
    assert commands.notices == [ModeState(mode=5, next=5)]


def test_a_change_whose_commit_never_comes_is_over_after_a_while(commands: Commands) -> None:
    send = Sender(commands)
    send(InformMode, mode=2)
    send(control.SetMode, mode=2)
    commands.tick(NOW + 4_000_000_000)
    assert len(commands.notices) == 1
    commands.tick(NOW + 6_000_000_000)
    assert commands.notices[1:] == [ModeState(mode=2, next=2)]
