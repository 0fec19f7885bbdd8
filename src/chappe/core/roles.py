"""What the machines of a node know of each other: a role beside the node, the mesh, and the process they run in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from chappe.engine._engine import Engine
from chappe.machine import Address, AuditWritten, Effect, Input
from chappe.wire.control import Measure, Message


class Role(Protocol):
    """What a node is beside a node: a `Machine` that is given the messages it takes, and every connection.

    It looks a source up in the `Sessions` that it is made with: the session of a source is there from its `Connected`
    to its `Disconnected`. What comes of its intents for the audit log is given to it, whether the source is there or
    not.
    """

    def receive(self, source: Address, message: Input | AuditWritten, now_ns: int) -> list[Effect]: ...
    def tick(self, now_ns: int) -> list[Effect]: ...
    def next_tick(self) -> int: ...

    def takes(self, message: Message) -> bool:
        """Whether messages of this kind are for the role, whoever sends them."""

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        """The rows of a listing; None: it knows of no such listing. Who asks has the right to administrate.

        RefusedError says why it cannot answer now.
        """

    def gauges(self) -> dict[str, float]:
        """What /metrics shows of it, as `chappe_NAME`."""


class RoleProcess(Role, Protocol):
    """A role with I/O of its own: a store, a lease. Its calls are made in the loop of the node."""

    async def open(self, host: Host) -> None:
        """What it needs before anybody may connect; whoever dials meanwhile is refused and tries again."""

    async def start(self) -> None:
        """The node listens: begin."""

    async def stop(self) -> None:
        """The node ends; its connections are still there."""


class Host(Protocol):
    """The process that a role runs in."""

    @property
    def engine(self) -> Engine: ...

    @property
    def behind(self) -> bool:
        """Whether messages have arrived that nobody has looked at."""

    def carry_out(self, effects: list[Effect]) -> None:
        """Effects of something that happened outside of `receive` and `tick`."""

    def publish(self, topic: str, body: bytes) -> None:
        """An event of a feed, behind everything that somebody waits for."""

    def follow(self, urls: Iterable[str]) -> None:
        """Keep a management link to each of these."""


class Names(Protocol):
    """The cell as the control protocol knows it: the names of its clients."""

    def add_names(self, port: int, names: Sequence[str], owner: str) -> None:
        """A client gets these names; `owner`: its identity, which has a quota. RefusedError, and it gets none."""

    def remove_names(self, port: int, names: Sequence[str]) -> None:
        """It has them no more; RefusedError if it does not have one of them, and nothing changes."""


class Interest(Protocol):
    """The mesh as the control protocol knows it: what clients of this node are interested in and ask for."""

    def subscribed(self, kind: str, pattern: str, group: str) -> None:
        """A client subscribed to a pattern; once for each client."""

    def unsubscribed(self, kind: str, pattern: str, group: str) -> None:
        """It does so no more."""

    def advertised(self, patterns: Collection[tuple[str, str]]) -> None:
        """What clients of this node publish, as (kind, topic or pattern); it is read at the next tick."""

    def publications(self) -> Iterator[dict[str, Any]]:
        """What is advertised elsewhere in the mesh."""

    def measure(self, port: int, request: Measure, now_ns: int) -> list[Effect]:
        """A client asks for measurements; RefusedError says why there are none."""
