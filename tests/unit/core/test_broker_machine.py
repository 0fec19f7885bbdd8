"""The role of a broker without I/O: who is its parent, who leads, and what they are told."""

from __future__ import annotations

from chappe.core.broker.log import BrokerLog
from chappe.core.broker.machine import BrokerMachine
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.machine import Connected, Disconnected, Effect, Send
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.status.topology import BrokerSpec, Topology
from chappe.wire.base import Failed, Message
from chappe.wire.management import AddRouter, Child, Join, Lead, Standby
from tests.support.counterbroker import CounterBroker

LISTEN = ("tcp://127.0.0.1:1",)
TOPOLOGY = Topology(
    broker=(BrokerSpec(name="top", listen=LISTEN), BrokerSpec(name="west", parent="top", listen=LISTEN))
)


class Role:
    """A process of west with a counter for a broker, and a lease that the test takes away."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        self.held = True
        self.broker = CounterBroker("west")
        self.machine = BrokerMachine(
            "west", "west", TOPOLOGY, RuleBook.open, lambda epoch: self.held, self.sessions, BrokerLog("west"),
            lambda: 1,
        )  # fmt: skip

    def lead(self) -> list[tuple[int, Message]]:
        return sent(self.machine.lead(self.broker, 4, 1))

    def open(self, port: int, name: str, manager: bool = False) -> list[tuple[int, Message]]:
        self.sessions.open(Session(port, name, "node", dev_identity(name, "node"), manager=manager))
        return sent(self.machine.receive(port, Connected(), 1))

    def close(self, port: int) -> list[tuple[int, Message]]:
        effects = self.machine.receive(port, Disconnected(), 1)
        self.sessions.close(port)
        return sent(effects)

    def receive(self, port: int, message: Message) -> list[tuple[int, Message]]:
        return sent(self.machine.receive(port, message, 1))


def sent(effects: list[Effect]) -> list[tuple[int, Message]]:
    return [
        (effect.to, effect.message) for effect in effects if isinstance(effect, Send) and isinstance(effect.to, int)
    ]


def test_a_router_is_told_who_leads_whenever_that_changes() -> None:
    role = Role()
    role.open(1, "r1")
    assert role.receive(1, Join(router="r1", issuer=b"i" * 16)) == [(1, Standby(role="west"))]
    assert role.lead() == [(1, Lead(role="west", epoch=4, finds=True))]
    assert sent(role.machine.resign("over")) == [(1, Standby(role="west"))]
    assert role.machine.epoch == 0


def test_a_lease_that_has_run_out_ends_the_term_before_anything_else_is_done() -> None:
    role = Role()
    role.lead()
    role.open(1, "r1")
    role.receive(1, Join(router="r1", issuer=b"i" * 16))
    heard = len(role.broker.heard)
    role.held = False
    answers = role.receive(1, AddRouter(id=7, name="r2"))
    assert [type(message) for _, message in answers] == [Standby, Failed]
    assert len(role.broker.heard) == heard


def test_a_parent_that_comes_back_is_greeted_anew() -> None:
    role = Role()
    role.lead()
    assert [type(message) for _, message in role.open(1, "top", manager=True)] == [Child]
    role.receive(1, Lead(role="top", epoch=1))
    role.close(1)
    role.broker.epoch = 9  # what it says of itself has changed meanwhile
    ((port, greeting),) = role.open(2, "top", manager=True)
    assert (port, greeting) == (2, Child(id=1, role="west", epoch=9, mode=0, issuer=b"c"))
    assert role.broker.connections == ["+parent", "-parent", "+parent"]


def test_a_second_process_of_the_parent_gets_the_greeting_that_the_first_got() -> None:
    role = Role()
    role.lead()
    ((_, greeting),) = role.open(1, "top-1", manager=True)
    assert role.open(2, "top-2", manager=True) == [(2, greeting)]
    assert role.broker.connections == ["+parent"]


def test_a_defect_of_the_broker_ends_the_term_and_nothing_waits() -> None:
    role = Role()
    role.lead()
    role.open(1, "r1")
    role.broker.joined = None  # type: ignore[assignment]
    assert role.receive(1, Join(router="r1", issuer=b"i" * 16)) == [(1, Standby(role="west"))]
    assert role.machine.resigned.startswith("the broker failed")
    assert (role.machine.epoch, role.machine.waiting) == (0, 0)
