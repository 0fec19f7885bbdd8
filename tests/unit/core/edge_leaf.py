"""A broker by hand, for tests of the edge that it leads."""

from __future__ import annotations

from typing import Any

from chappe.wire import control
from chappe.wire.control import Grant, Variable
from chappe.wire.management import (
    Function,
    Input,
    Lead,
)
from tests.unit.core.control_table import Table

METER, READER = b"meter-session...", b"reader-session.."
RATE: dict[str, Any] = {"rate_num": 1, "rate_den": 1_000_000}
SPEED = Variable(0x400001, "plant", "speed", "float", 1, 1_000_000, 3, 0)
SLOW = Grant(4_000_000, 4, 2_000_000, 2, 1)
SUM = Variable(99, "area", "sum", "float", 0, 1, 3, 0)
FUNCTION = Function(publisher="area", variable="sum", inputs=(Input("plant", "speed"),), calculator="builtin:sum")


class Leaf:
    """A broker by hand: it says what the test wants and keeps what it was asked."""

    def __init__(self, table: Table, name: str = "leaf-1", epoch: int = 1, finds: bool = True) -> None:
        self.table, self.name, self.epoch, self.number, self.finds = table, name, epoch, 0, finds
        self.joined = [message for to, message in table.broker(name) if to == name]

    def lead(self) -> list[control.Message]:
        return self.told(self.table.tell(self.name, Lead(role="leaf", epoch=self.epoch, finds=self.finds)))

    def told(self, sent: list[tuple[str, control.Message]]) -> list[control.Message]:
        return [message for to, message in sent if to == self.name]

    def command(self, kind: type[control.Command], **fields: Any) -> Any:
        self.number += 1
        command = kind(id=self.number, epoch=self.epoch, command=self.number, **fields)
        (answer,) = self.told(self.table.tell(self.name, command))
        return answer

    def answer(self, asked: control.Message, kind: type[control.Answer], **fields: Any) -> list[Any]:
        """Answer a request; what clients are told because of it."""
        assert isinstance(asked, control.Request)
        return [message for _, message in self.table.tell(self.name, kind(id=asked.id, **fields))]


def asked(leaf: Leaf, who: str, kind: type[control.Request], **fields: Any) -> Any:
    """The one request that the broker gets because of that of a client."""
    (request,) = leaf.told(leaf.table.tell(who, kind(id=7, **fields)))
    return request
