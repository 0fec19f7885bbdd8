"""Table commands: each carried out once, in the right epoch (GS-073, GS-160)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.engine._engine import Engine
from chappe.node.commands import REMEMBERED, SLICE, TEMPORARY, Commands
from chappe.wire import control
from chappe.wire.control import Done, Failed

RATE = {"rate_num": 1, "rate_den": 1_000_000}


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def commands(engine: Engine) -> Commands:
    ports = {"east": engine.open_port(peer=True)}
    return Commands(engine, ports.get)


class Sender:
    """Numbers its commands like a broker."""

    def __init__(self, commands: Commands, epoch: int = 1) -> None:
        self.commands, self.epoch, self.number = commands, epoch, 0

    def __call__(self, kind: type[control.Command], **fields: Any) -> Any:
        self.number += 1
        return self.commands.receive(kind(id=100 + self.number, epoch=self.epoch, command=self.number, **fields))


@pytest.mark.spec("GS-073")
def test_a_broker_sets_and_changes_paths_in_place(engine: Engine, commands: Commands) -> None:
    send = Sender(commands)
    assert send(control.SetVariable, variable_id=5, **RATE) == Done(id=101)
    path = {"variable_id": 5, "link": "east", "path": 9}
    assert isinstance(send(control.SetupPath, **path, intervals_ns=(0,)), Done)
    assert isinstance(send(control.SetupPath, **path, intervals_ns=(4_000_000,), priorities=(1,)), Done)
    assert isinstance(send(control.SetVariable, variable_id=5, rate_num=1, rate_den=2_000_000), Done)
    described = engine.status.describe(5)
    assert len(described["paths"]) == 1
    assert isinstance(send(control.TerminatePath, variable_id=5, path=9), Done)
    assert len(engine.status.describe(5)["paths"]) == 0
    assert isinstance(send(control.DropVariable, variable_id=5), Done)
    assert engine.status.entries() == 0


def test_a_repeated_command_gets_the_same_answer_and_changes_nothing(engine: Engine, commands: Commands) -> None:
    drop = control.DropVariable(id=2, epoch=1, command=2, variable_id=5)
    commands.receive(control.SetVariable(id=1, epoch=1, command=1, variable_id=5, **RATE))
    assert commands.receive(drop) == Done(id=2)
    commands.receive(control.SetVariable(id=3, epoch=1, command=3, variable_id=5, **RATE))
    drop.id = 4
    assert commands.receive(drop) == Done(id=4)
    assert engine.status.entries() == 1


def test_a_broker_of_an_older_epoch_changes_nothing(engine: Engine, commands: Commands) -> None:
    old, new = Sender(commands, 1), Sender(commands, 2)
    old(control.SetVariable, variable_id=5, **RATE)
    new(control.SetVariable, variable_id=6, **RATE)
    answer = old(control.DropVariable, variable_id=5)
    assert isinstance(answer, Failed)
    assert (answer.code, engine.status.entries()) == ("stale", 2)


def test_a_command_too_old_to_remember_is_refused_instead_of_repeated(commands: Commands) -> None:
    for number in range(1, REMEMBERED + 10):
        commands.receive(control.SetVariable(id=1, epoch=1, command=number, variable_id=5, **RATE))
    answer = commands.receive(control.SetVariable(id=1, epoch=1, command=3, variable_id=5, **RATE))
    assert isinstance(answer, Failed)
    assert answer.code == "stale"


@pytest.mark.parametrize(
    ("kind", "fields", "word"),
    [
        (control.SetVariable, {"variable_id": 0, "rate_num": 0, "rate_den": 1}, "0"),
        (control.SetVariable, {"variable_id": 5, "rate_num": 1, "rate_den": 0}, "rate"),
        (control.SetVariable, {"variable_id": 5, **RATE, "inputs": ("nowhere",)}, "no link named 'nowhere'"),
        (control.SetupPath, {"variable_id": 9, "link": "east", "path": 1, "intervals_ns": (0,)}, "9"),
        (control.SetupPath, {"variable_id": 5, "link": "north", "path": 1, "intervals_ns": (0,)}, "'north'"),
        (control.SetupPath, {"variable_id": 5, "link": "east", "path": 1, "intervals_ns": (0, 0)}, "2 entries"),
        (control.SetupPath, {"variable_id": 5, "link": "east", "path": 1 << 20, "intervals_ns": (0,)}, "path"),
        (control.SetFlooding, {"variable_id": 5, "level": 999}, "level"),
        (control.SetMode, {"mode": 16}, "mode 16"),
        (control.PrepareMode, {"mode": -1}, "mode -1"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(
    commands: Commands, kind: type[control.Command], fields: dict[str, Any], word: str
) -> None:
    send = Sender(commands)
    send(control.SetVariable, variable_id=5, **RATE)
    answer = send(kind, **fields)
    assert isinstance(answer, Failed)
    assert answer.code == "invalid"
    assert kind.__name__ in answer.reason
    assert word in answer.reason


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
    assert isinstance(send(control.SetMode, mode=3), Done)
    assert engine.status.slot == 3


def test_flooding_is_set_and_cleared(engine: Engine, commands: Commands) -> None:
    send = Sender(commands)
    send(control.SetVariable, variable_id=5, **RATE)
    assert isinstance(send(control.SetFlooding, variable_id=5, level=2), Done)
    assert isinstance(send(control.ClearFlooding, variable_id=5), Done)
    assert isinstance(send(control.ClearFlooding, variable_id=6), Failed)
