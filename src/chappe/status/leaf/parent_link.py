"""The link of a leaf broker to its parent: requests that are repeated until they are answered, and the map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from chappe.machine import NEVER
from chappe.status.leaf.cloud import Cloud
from chappe.status.machine import PARENT
from chappe.wire.base import Answer, Message, Request
from chappe.wire.management import Child, Map

LOADS_NS = 10_000_000_000  # loads are reported at most so often


class ParentLink:
    """`asked` requests survive the loss of the link: whoever leads above gets them again."""

    def __init__(self, cloud: Cloud, has_parent: bool) -> None:
        self.has_parent = has_parent
        self.up = False  # the parent has said that it leads
        self._cloud = cloud
        self._number = 0
        self._asked: dict[int, tuple[Request, Callable[[Message], None]]] = {}
        self._reported_ns = 0
        self._loads: dict[str, tuple[float, ...]] = {}
        self._changed = False

    def lead(self, epoch: int) -> None:
        """Numbers of another epoch never meet the answers to this one's."""
        self._number = epoch << 32

    def hello(self, epoch: int, mode: int, publishers: Iterable[str]) -> None:
        """The connection is there: say who we are and which names are ours; `Lead` is the answer."""
        self._number += 1
        role = self._cloud.role
        self._cloud.outbox.send(PARENT, Child(id=self._number, role=role, epoch=epoch, mode=mode,
                                              issuer=f"{role}.{epoch}".encode(),
                                              claims=tuple((publisher, role) for publisher in publishers),
                                              finds=True))  # fmt: skip

    def led(self) -> None:
        """The parent leads, perhaps a new one: it gets the map and everything that has no answer."""
        self.up = True
        self._send_map()
        for request, _ in self._asked.values():
            self._cloud.outbox.send(PARENT, request)

    def lost(self) -> None:
        self.up = False

    def ask(self, kind: Callable[..., Request], answered: Callable[[Message], None], **fields: Any) -> int:
        """Send a request; `answered` gets its answer, whenever that comes."""
        self._number += 1
        request = kind(id=self._number, **fields)
        self._asked[self._number] = (request, answered)
        if self.up:
            self._cloud.outbox.send(PARENT, request)
        return self._number

    def send(self, message: Message) -> None:
        if self.up:
            self._cloud.outbox.send(PARENT, message)

    def answered(self, message: Answer) -> bool:
        """An answer of the parent; False if nothing was asked under that number."""
        asked = self._asked.pop(message.id, None)
        if asked is None:
            return False
        asked[1](message)
        return True

    def drop(self, number: int) -> None:
        """The answer does not matter any more."""
        self._asked.pop(number, None)

    # the map

    def changed(self) -> None:
        """A router or channel came, went or failed: the parent gets the map at the end of the turn."""
        self._changed = True

    def flush(self) -> None:
        if self._changed and self.up:
            self._send_map()

    def next_tick(self) -> int:
        return self._reported_ns + LOADS_NS if self.up else NEVER

    def tick(self, now_ns: int) -> None:
        if self.up and now_ns - self._reported_ns >= LOADS_NS:
            self._reported_ns = now_ns
            if _differ(self._loads, self._now()):
                self._send_map()

    def _now(self) -> dict[str, tuple[float, ...]]:
        return self._cloud.allocator.router_loads()

    def _send_map(self) -> None:
        self._changed = False
        self._loads = self._now()
        routers, channels = self._cloud.topology_state.facts(self._loads)
        self._cloud.outbox.send(PARENT, Map(routers=routers, channels=channels))


def _differ(one: dict[str, tuple[float, ...]], other: dict[str, tuple[float, ...]]) -> bool:
    """Whether a load has changed by more than a twentieth."""
    if one.keys() != other.keys():
        return True
    return any(abs(a - b) > 0.05 * max(a, b) for name in one for a, b in zip(one[name], other[name], strict=True))
