"""Functions whose inputs are in another cloud, from the creator's side: asked of the parent, answered to the edge."""

from __future__ import annotations

import msgspec

from chappe.machine import NEVER
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.machine import Address
from chappe.wire.base import Failed, Message
from chappe.wire.management import Condense, Entity, Uncondense

PATIENCE_NS = 35_000_000_000  # longer than an ancestor waits for the leaf that places it


class ForwardedRequest(msgspec.Struct):
    """A request that an ancestor passes on."""

    number: int  # of the request to the parent
    deadline_ns: int
    removal: bool
    repeated: bool = False  # the parent was lost meanwhile: it may have been carried out before


class RemoteFunctions:
    """By the edge and the number of its request; an edge that is lost asks again, and so does a later leader here."""

    def __init__(self, cloud: Cloud, parent: ParentLink) -> None:
        self._cloud = cloud
        self._parent = parent
        self._asked: dict[tuple[Address, int], ForwardedRequest] = {}

    def condense(self, address: Address, request: Condense, creator: str) -> None:
        """Not all inputs are published here: an ancestor knows the cloud that has them."""
        name = f"{request.function.publisher}/{request.function.variable}"
        if self._reaches(address, request.id, f"function {name}: not all its inputs are in cloud {self._cloud.role}"):
            number = self._parent.ask(
                Condense, lambda answer: self._answered(address, request.id, answer), function=request.function,
                entity=Entity(creator, b""), home=self._cloud.role,
            )  # fmt: skip
            self._enter(address, request.id, number, removal=False)

    def uncondense(self, address: Address, request: Uncondense, creator: str) -> None:
        """No function of this cloud: the name of its publisher belongs to the cloud that runs it."""
        name = f"{request.publisher}/{request.variable}"
        if self._reaches(address, request.id, f"there is no function {name} in cloud {self._cloud.role}"):
            number = self._parent.ask(
                Uncondense, lambda answer: self._answered(address, request.id, answer), publisher=request.publisher,
                variable=request.variable, entity=Entity(creator, b""),
            )  # fmt: skip
            self._enter(address, request.id, number, removal=True)

    def _reaches(self, address: Address, request: int, problem: str) -> bool:
        """Whether it can be asked now and is not under way; the request is answered if it cannot."""
        if (address, request) in self._asked:
            return False
        if not self._parent.up:
            reason = f"{problem}, and no broker above it can be reached; try again"
            self._cloud.fail(address, request, "unavailable", reason)
        return self._parent.up

    def _enter(self, address: Address, request: int, number: int, removal: bool) -> None:
        self._asked[address, request] = ForwardedRequest(number, self._cloud.now_ns + PATIENCE_NS, removal)

    def _answered(self, address: Address, request: int, answer: Message) -> None:
        asked = self._asked.pop((address, request))
        if asked.removal and asked.repeated and isinstance(answer, Failed) and answer.code == "unknown":
            self._cloud.done(address, request)  # it is not there any more, as was asked
        else:
            self._cloud.answer(address, msgspec.structs.replace(answer, id=request))

    def parent_lost(self) -> None:
        """Whoever leads above gets everything again."""
        for asked in self._asked.values():
            asked.repeated = True

    def lost(self, address: Address) -> None:
        """An edge is gone; it will ask again when it is back."""
        for key in [key for key in self._asked if key[0] == address]:
            self._parent.drop(self._asked.pop(key).number)

    def next_tick(self) -> int:
        return next((asked.deadline_ns for asked in self._asked.values()), NEVER)

    def tick(self, now_ns: int) -> None:
        for address, request in [key for key, asked in self._asked.items() if asked.deadline_ns <= now_ns]:
            self._parent.drop(self._asked.pop((address, request)).number)
            reason = "the brokers between the clouds do not answer; ask again whether it was done"
            self._cloud.fail(address, request, "unavailable", reason)
