"""What every router of a cloud should have, what it may not have yet, and the commands that close the gap.

An entry of a router has a key (variable id, number): the number of a path, or FLOOD, FUNCTION, NOTICE, REGRANT. What a
router should have is `desired`; what it has not confirmed is `awaited`. While it is away the keys only gather: on its
return it gets the difference, or is rebuilt if its process is another one (GS-151, GS-152).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from chappe.status.leaf.state import RouterItem
from chappe.status.outbox import Outbox
from chappe.wire.base import Command, Failed, Message, Variable
from chappe.wire.constants import MODES
from chappe.wire.management import (
    Channel,
    Configure,
    Displace,
    Flood,
    Function,
    Join,
    Path,
    Place,
    Regranted,
    Reset,
    Setup,
    Teardown,
    Withdrawn,
)

log = logging.getLogger(__name__)

FLOOD, FUNCTION, NOTICE, REGRANT = -1, -2, -3, -4
BATCH = 256  # paths in one command
MISSED = 10_000  # a router that has missed more is rebuilt

Key = tuple[int, int]
T = TypeVar("T")


class FloodedVariable(msgspec.Struct, frozen=True):
    """A flooded variable as routers know it."""

    variable: Variable
    levels: tuple[int, ...]


class PlacedFunction(msgspec.Struct, frozen=True):
    """A function as its router knows it."""

    output: Variable
    function: Function
    inputs: tuple[Variable, ...]


TableEntry = Path | FloodedVariable | PlacedFunction


class Ticket(Protocol):
    """Somebody waits until routers have confirmed keys."""

    def confirmed(self, router: str, key: Key) -> None: ...

    def refused(self, router: str, key: Key, reason: str) -> None: ...

    def lost(self, router: str) -> None: ...


class Router:
    """One router, whether it is connected or not."""

    def __init__(self, name: str, item: RouterItem) -> None:
        self.name = name
        self.item = item  # `issuer`: the process that has everything
        self.joined = False
        self.issuer = b""  # of the process that is or was connected
        self.desired: dict[Key, TableEntry] = {}
        self.awaited: dict[Key, tuple[int, Ticket | None]] = {}  # number of the command under way, or 0
        self.unsent: dict[Key, None] = {}
        self.rebuilding: set[int] = set()  # commands of a rebuild that are not confirmed
        self.removed: dict[int, Variable] = {}  # floodings that are over and not confirmed
        self.notices: dict[Key, Withdrawn | Regranted] = {}  # not confirmed


class SentCommand(msgspec.Struct):
    """A command under way."""

    router: Router
    keys: tuple[Key, ...] = ()
    mode: int = 0  # number of the command of a mode change


class Routers:
    """All routers of the cloud, and every command that is under way."""

    def __init__(self, outbox: Outbox, refused: Callable[[Key, str], None]) -> None:
        self.epoch = 0
        self.all: dict[str, Router] = {}
        self._outbox = outbox
        self._path_refused = refused  # a router refuses for good what it had: somebody's subscription ends
        self._number = 0
        self._sent: dict[int, SentCommand] = {}
        self._unsent: dict[str, Router] = {}

    def add(self, name: str, item: RouterItem | None = None) -> Router:
        router = self.all.get(name)
        if router is None:
            router = self.all[name] = Router(name, item or RouterItem())
        return router

    def remove(self, name: str) -> None:
        """It is no part of the cloud any more; whoever waits for it waits no longer."""
        router = self.all.pop(name)
        self._unsent.pop(name, None)
        for key, (_, ticket) in list(router.awaited.items()):
            if ticket is not None:
                ticket.confirmed(name, key)

    def joined(self, name: str) -> bool:
        router = self.all.get(name)
        return router is not None and router.joined

    def knows(self, name: str, key: Key) -> bool:
        """Whether it has something of that key, or may have."""
        router = self.all.get(name)
        return router is not None and (key in router.desired or key in router.awaited)

    # what a router should have

    def set(self, name: str, key: Key, entry: TableEntry, ticket: Ticket | None = None) -> None:
        """The router is to have this; the command follows at the end of the turn."""
        router = self.all[name]
        router.desired[key] = entry
        self._await(router, key, ticket)

    def unset(self, name: str, key: Key, ticket: Ticket | None = None, variable: Variable | None = None) -> None:
        """The router is not to have this any more; of a flooding the variable must be given."""
        router = self.all.get(name)
        if router is None:
            if ticket is not None:
                ticket.confirmed(name, key)
            return
        router.desired.pop(key, None)
        if key[1] == FLOOD and variable is not None:
            router.removed[key[0]] = variable
        self._await(router, key, ticket)

    def notify(self, name: str, key: Key, notice: Withdrawn | Regranted, ticket: Ticket) -> None:
        """Send an edge a notice, again and again until a command that followed it is confirmed."""
        self.all[name].notices[key] = notice
        self._await(self.all[name], key, ticket)

    def restore(self, name: str, key: Key, entry: TableEntry) -> None:
        """After a restart: it has this, as far as is known."""
        self.add(name).desired[key] = entry

    def _await(self, router: Router, key: Key, ticket: Ticket | None) -> None:
        router.awaited[key] = (0, ticket)
        router.unsent[key] = None
        self._unsent[router.name] = router

    def flush(self) -> None:
        """The end of a turn: commands for everything that changed in routers that are there."""
        if not self._unsent:
            return
        for router in self._unsent.values():
            if router.joined:
                self._send_changes(router, router.unsent)
            router.unsent = {}
        self._unsent = {}

    # coming and going

    def join(self, join: Join, channels: tuple[Channel, ...]) -> bool:
        """A router is there. True if it has to be brought up to date, False if it said so before."""
        router = self.all[join.router]
        if router.joined and router.issuer == join.issuer:
            return False
        if router.joined:
            self.lose(router.name)
        router.joined, router.issuer = True, join.issuer
        router.unsent = {}
        self.configure(router.name, channels)
        if join.issuer != router.item.issuer or len(router.awaited) > MISSED:
            self._rebuild(router)
        else:
            self._send_changes(router, list(router.awaited))
        return True

    def configure(self, name: str, channels: tuple[Channel, ...]) -> None:
        """All its channels (GS-012)."""
        router = self.all[name]
        if router.joined:
            self._send(router, Configure, (), channels=channels)

    def lose(self, name: str) -> None:
        """Its connection is gone, and every answer with it."""
        router = self.all.get(name)
        if router is None or not router.joined:
            return
        router.joined = False
        router.rebuilding = set()
        for number in [number for number, sent in self._sent.items() if sent.router is router]:
            del self._sent[number]
        tickets: dict[int, Ticket] = {}
        for key, (_, ticket) in router.awaited.items():
            router.awaited[key] = (0, ticket)
            if ticket is not None:
                tickets[id(ticket)] = ticket
        for ticket in tickets.values():
            ticket.lost(name)

    def _rebuild(self, router: Router) -> None:
        router.item.issuer = b""  # until it has everything: a broker that restarts in between begins again
        self._outbox.put("router", router.name, router.item)
        gone = tuple(key for key in router.awaited if key not in router.desired)
        numbers = [self._send(router, Reset, gone)]
        router.removed = {}
        numbers += self._send_changes(router, list(router.desired))
        router.rebuilding = set(numbers)

    # commands

    def send_mode_command(self, name: str, kind: Callable[..., Command], number: int, mode: int) -> bool:
        """A command of a mode change, if the router is there."""
        router = self.all.get(name)
        if router is None or not router.joined:
            return False
        sent = self._send(router, kind, (), mode=mode)
        self._sent[sent].mode = number
        return True

    def _send_changes(self, router: Router, keys: Iterable[Key]) -> list[int]:
        """Commands that make the router equal to `desired` in these keys."""
        numbers = []
        paths: list[Path] = []
        gone: list[Key] = []
        notices: list[Key] = []
        for key in keys:
            entry = router.desired.get(key)
            if isinstance(entry, Path):
                paths.append(entry)
            elif entry is None and key[1] >= 0:
                gone.append(key)
            elif key in router.notices:
                self._outbox.send(f"router/{router.name}", router.notices[key])
                notices.append(key)
            elif isinstance(entry, PlacedFunction):
                numbers.append(self._send(router, Place, (key,), output=entry.output, function=entry.function,
                                          inputs=entry.inputs))  # fmt: skip
            elif entry is not None:
                numbers.append(self._send(router, Flood, (key,), variable=entry.variable, levels=entry.levels))
            elif key[1] == FUNCTION:
                numbers.append(self._send(router, Displace, (key,), variable_id=key[0]))
            elif key[0] in router.removed:
                over = router.removed[key[0]]
                numbers.append(self._send(router, Flood, (key,), variable=over, levels=(0,) * MODES))
        return [*numbers, *self._send_paths(router, gone, notices, paths)]

    def _send_paths(self, router: Router, gone: list[Key], notices: list[Key], paths: list[Path]) -> Iterator[int]:
        """The answer to a removal, even of nothing, also confirms the notices that were sent before it."""
        for left in _batches([*gone, *notices]):
            yield self._send(router, Teardown, left, paths=tuple(key for key in left if key[1] >= 0))
        for some in _batches(paths):
            yield self._send(router, Setup, tuple((p.variable.variable_id, p.path) for p in some), paths=some)

    def _send(self, router: Router, kind: Callable[..., Command], keys: tuple[Key, ...], **fields: object) -> int:
        self._number += 1
        number = self._number
        self._sent[number] = SentCommand(router, keys)
        awaited = router.awaited
        for key in keys:
            before = awaited.get(key)
            awaited[key] = (number, before[1] if before is not None else None)
        self._outbox.send(f"router/{router.name}", kind(id=number, epoch=self.epoch, command=number, **fields))
        return number

    def answered(self, name: str, message: Message, number: int) -> SentCommand | None:
        """A router's answer to a command; None if it is none, or to a command of another connection."""
        sent = self._sent.get(number)
        if sent is None or sent.router.name != name:
            return None
        if isinstance(message, Failed):
            if message.code == "stale":
                return None  # another process leads; this one will notice by its lease
            del self._sent[number]
            self._refused(sent, number, message.reason)
            return sent
        del self._sent[number]
        router = sent.router
        for key in sent.keys:
            self._confirm(router, key, number)
        if router.rebuilding:
            router.rebuilding.discard(number)
            if not router.rebuilding:
                router.item.issuer = router.issuer
                self._outbox.put("router", router.name, router.item)
        return sent

    def _confirm(self, router: Router, key: Key, number: int) -> None:
        awaited = router.awaited.get(key)
        if awaited is None or awaited[0] != number:
            return  # it has changed since
        del router.awaited[key]
        router.notices.pop(key, None)
        if key[1] == FLOOD and key not in router.desired:
            router.removed.pop(key[0], None)
        if awaited[1] is not None:
            awaited[1].confirmed(router.name, key)

    def _refused(self, sent: SentCommand, number: int, reason: str) -> None:
        router = sent.router
        if not sent.keys and not sent.mode:  # its channels: nobody waits for them, and it goes on with those it had
            log.warning("router %s refuses its channels, correct them: %s", router.name, reason)
        keys = [key for key in sent.keys if router.awaited.get(key, (0, None))[0] == number]
        if len(keys) > 1:
            for key in keys:  # one of them is to blame; the others are welcome alone
                router.rebuilding.update(self._send_changes(router, (key,)) if number in router.rebuilding else ())
                if router.awaited[key][0] == number:
                    self._send_changes(router, (key,))
        for key in keys if len(keys) == 1 else ():
            ticket = router.awaited[key][1]
            if key not in router.desired:
                self._confirm(router, key, number)
            elif ticket is not None:
                ticket.refused(router.name, key, reason)
            else:
                del router.awaited[key]
                self._path_refused(key, f"{router.name} refuses it: {reason}")
        router.rebuilding.discard(number)


def _batches(items: list[T]) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(items), BATCH):
        yield tuple(items[at : at + BATCH])
