"""Routers with condensation functions, for tests: the test is the broker."""

from __future__ import annotations

import contextlib
import itertools
import os
import textwrap
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.client.client import Client
from chappe.runtime.functions import Caps
from chappe.runtime.node import Node
from chappe.status.condensation.functions import output_of
from chappe.wire.base import Variable
from chappe.wire.management import Displace, Function, Input, Place, Reset
from tests.support.nodes import eventually, running

QUICK = Caps(report_s=0.05, silent_s=1.5, restart_s=0.01, longest_s=0.05)
FIRST_ID = 0x3FC00001
NODE = '[node]\nname = "r1"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


@dataclass
class Plant:
    """A node, a client that publishes and watches, and the commands of a broker."""

    node: Node
    client: Client
    commands: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(FIRST_ID))

    async def place(self, inputs: Sequence[Any], calculator: str, name: str = "result", **settings: Any) -> Variable:
        """Place a function over published variables (or `Variable`s); its output."""
        known = [each if isinstance(each, Variable) else described(each) for each in inputs]
        named = tuple(Input(each.publisher, each.variable) for each in known)
        function = Function(publisher="out", variable=name, inputs=named, calculator=calculator, **settings)
        output = output_of(function, known, next(self.numbers))
        await self.client.command(
            Place(id=0, epoch=1, command=next(self.commands), output=output, function=function, inputs=tuple(known))
        )
        return output

    async def displace(self, output: Variable) -> None:
        await self.client.command(Displace(id=0, epoch=1, command=next(self.commands), variable_id=output.variable_id))

    async def reset(self) -> None:
        await self.client.command(Reset(id=0, epoch=1, command=next(self.commands)))

    async def row(self, output: Variable) -> dict[str, Any]:
        """What the node says of a function."""
        rows = await self.client.list("functions")
        return next(row for row in rows if row["id"] == output.variable_id)

    async def reaches(self, output: Variable, state: str) -> dict[str, Any]:
        """Wait until a function is in that state."""
        await eventually(
            lambda: any(
                row["id"] == output.variable_id and row["state"] == state for row in self.node.functions.rows()
            ),
            20,
        )
        return await self.row(output)


@contextlib.asynccontextmanager
async def plant(caps: Caps = QUICK) -> AsyncIterator[Plant]:
    """One router in this loop, and one client of it."""
    async with running(NODE) as (node,):
        node.functions.caps = caps
        async with chappe.connect(node.url, name="plant") as client:
            yield Plant(node, client)


def described(variable: Any) -> Variable:
    """What a broker knows of a variable that a client has registered."""
    num, den = variable.rate
    return Variable(
        variable.id, variable.publisher, variable.name, variable.type, num, den, variable.priority, variable.options
    )


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, **entries: str) -> None:
    """A package with entry points, as if it were installed here: name = class; a trigger is named `trigger_…`."""
    (folder / "plant_functions.py").write_text(textwrap.dedent(source))
    info = folder / "plant_functions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plant-functions\nVersion: 1.0\n")
    lines = {"chappe.calculators": [], "chappe.triggers": []}  # type: dict[str, list[str]]
    for name, made in entries.items():
        group = "chappe.triggers" if name.startswith("trigger_") else "chappe.calculators"
        lines[group].append(f"{name.removeprefix('trigger_')} = plant_functions:{made}")
    text = "\n".join(f"[{group}]\n" + "\n".join(found) for group, found in lines.items())
    (info / "entry_points.txt").write_text(text + "\n")
    monkeypatch.syspath_prepend(folder)


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
