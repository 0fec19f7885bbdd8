"""Which connection is which address of a broker: routers, children, operators, and the processes of its parent."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from chappe.core.session import Session
from chappe.status.machine import Address
from chappe.wire.base import Message
from chappe.wire.management import Child


def is_process_of(role: str, name: str) -> bool:
    """Whether a process of that name may speak for a role (`BrokerSpec.process`)."""
    return name == role or re.fullmatch(re.escape(role) + r"-[0-9]{1,4}", name) is not None


class Links:
    """One connection an address and one address a connection."""

    def __init__(self) -> None:
        self._sessions: dict[Address, Session] = {}
        self._addresses: dict[int, Address] = {}
        self._epochs: dict[Address, int] = {}  # of the child that is bound

    def __iter__(self) -> Iterator[Address]:
        return iter(list(self._sessions))

    def address(self, session: Session) -> Address | None:
        return self._addresses.get(session.port)

    def session(self, address: Address) -> Session | None:
        return self._sessions.get(address)

    def bind(self, address: Address, session: Session) -> bool:
        """This connection is that address from now on; False if it was before. Whoever had either has not any more."""
        if self._sessions.get(address) is session:
            return False
        self.release(session)
        other = self._sessions.get(address)
        if other is not None:
            self.release(other)
        self._sessions[address] = session
        self._addresses[session.port] = address
        return True

    def release(self, session: Session) -> Address | None:
        """A connection is over; the address it was."""
        address = self._addresses.pop(session.port, None)
        if address is not None:
            del self._sessions[address]
            self._epochs.pop(address, None)
        return address

    def outranks(self, address: Address, session: Session, epoch: int) -> bool:
        """Whether a newer process of that child is connected than one of this epoch."""
        bound = self._sessions.get(address)
        return bound is not None and bound is not session and self._epochs.get(address, 0) > epoch

    def at(self, address: Address, epoch: int) -> None:
        """The child that is bound to an address has that epoch."""
        self._epochs[address] = epoch


class Parents:
    """The processes of the parent role that are connected; the one that leads is the parent.

    Until one says that it leads everything goes to all of them: those that stand by ignore it.
    """

    def __init__(self) -> None:
        self.announced = False  # the broker knows that there is a parent
        self._leader: int | None = None  # its port
        self._epoch = 0
        self._sessions: dict[int, Session] = {}
        self._greeting: Child | None = None  # what the broker said first
        self._greeted: set[int] = set()  # ports that have not answered it

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def __contains__(self, session: Session) -> bool:
        return session.port in self._sessions

    def is_led_by(self, session: Session) -> bool:
        return session.port == self._leader

    def addressed(self, message: Message) -> list[int]:
        """The ports that a message for the parent goes to; a greeting is for all, any of them may lead."""
        if isinstance(message, Child):
            self._greeting = message
            self._greeted = set(self._sessions)
            return list(self._sessions)
        return [self._leader] if self._leader is not None else list(self._sessions)

    def opened(self, session: Session) -> Child | None:
        """A connection is there; what to greet it with, if the others were greeted before."""
        self._sessions[session.port] = session
        if self._greeting is not None:
            self._greeted.add(session.port)
        return self._greeting

    def closed(self, session: Session) -> bool:
        """A connection is over; whether that was the parent, or the last hope for one."""
        del self._sessions[session.port]
        return self.stands_by(session) or not self._sessions

    def leads(self, session: Session, epoch: int) -> Led:
        """One says that it leads: in answer to the greeting, of its own accord, or though a newer one does."""
        if epoch < self._epoch:
            return Led.NO
        known = self._leader == session.port and self._epoch == epoch
        answer = known or session.port in self._greeted
        self._greeted.discard(session.port)
        self._leader, self._epoch = session.port, epoch
        return Led.ANSWER if answer else Led.ANEW

    def stands_by(self, session: Session) -> bool:
        """One does not lead; whether it did."""
        self._greeted.discard(session.port)
        if self._leader != session.port:
            return False
        self._leader = None
        return True

    def forget(self) -> None:
        """Nobody was greeted: this process does not lead, or there is another parent."""
        self.announced, self._greeting = False, None
        self._greeted.clear()


class Led(enum.Enum):
    """What the word of a parent that it leads means."""

    NO = enum.auto()
    ANSWER = enum.auto()
    ANEW = enum.auto()
