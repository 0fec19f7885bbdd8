"""A node as a cell: names, links, updates and routes together, without a socket or clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from chappe.cells.link_updates import LinkUpdates
from chappe.cells.names import check_destination
from chappe.cells.neighbour import Neighbour
from chappe.cells.parts import CellParts
from chappe.engine.routes import ParcelRoute
from chappe.errors import ProtocolError
from chappe.machine import NEVER, Close, Connected, Disconnected, Effect, Log, Send
from chappe.machine import Address as Source
from chappe.wire.base import Message
from chappe.wire.cells import (
    MAX_SEQUENCE,
    CellHello,
    CellLinks,
    CellPeers,
    CellRecord,
    CellRecords,
    CellResync,
    CellWanted,
)

CAPABILITY = "cells"
AHEAD_MS = 86_400_000  # a clock may be a day ahead
REPEATED_LINKS = 15  # updates after which unchanged links are stated again
WATCHED_UPDATES = 30  # for which a lost neighbour that others still name is watched
LOOK_NS = 500_000_000  # between two looks at links that are busy
PAUSE_NS = 250_000_000  # between two choices of links, or two statements of them: news of cells come in crowds


@dataclass(slots=True)
class CellCounts:
    """What /metrics shows of a cell."""

    messages_in: int = 0
    refused: int = 0  # messages that were not believed
    excess: int = 0  # and those beyond the rate of one neighbour
    route_questions: int = 0
    unreachable: int = 0  # questions without an answer


class Cells:
    """The cell at one node. `receive` takes messages of neighbours that are cells, `work` goes on while `busy`.

    `Connected` follows `resume_port` of the engine, `Disconnected` follows `park_port`. Names are those of clients:
    `add_names`, `remove_names` and `gone` change them, and neighbours hear of it with the next `work`.
    """

    def __init__(self, parts: CellParts) -> None:
        self.me = parts.me
        self.address = parts.address
        self.engine = parts.engine
        self.settings = parts.settings
        self.names = parts.names
        self.directory = parts.directory
        self.trie = parts.trie
        self.neighbourhood = parts.neighbourhood
        self.router = parts.router
        self.neighbours = parts.neighbours
        self.dialling = parts.dialling
        self.groups = parts.groups
        self.counts = CellCounts()
        self._urls = parts.urls
        self._trained = parts.trained
        self._spread = parts.spread
        self._links: LinkUpdates = parts.links
        self._peers = parts.peers
        self._passive = parts.passive
        self._floor = 0  # the sequence that the record of this cell must exceed
        self._stated = CellRecord(self.me, 0, self.address)
        self._updates = 0
        self._update_ns = 0
        self._look_ns = 0
        self._refresh_ns = 0
        self._lost: dict[
            bytes, tuple[int, int]
        ] = {}  # neighbours: when to look whether others have a link, and until when
        self._follow = True  # links are to be chosen anew,
        self._follow_ns = 0  # but not before
        self._relink = False  # links of this cell came or went,
        self._relink_ns = 0  # but are not stated before
        self._reroute = False  # routes may be others
        self.engine.be_cell(self.me)

    # --- names of clients

    def add_names(self, port: int, names: Sequence[str], owner: str) -> None:
        """A client gets these names; `owner`: its identity, which has a quota. RefusedError, and it gets none."""
        self.names.add(port, names, owner)

    def remove_names(self, port: int, names: Sequence[str]) -> None:
        """It has them no more; RefusedError if it does not have one of them, and nothing changes."""
        self.names.remove(port, names)

    def gone(self, port: int) -> None:
        """A client is gone, with its names."""
        self.names.gone(port)

    # --- what happens

    def receive(self, source: Source, message: Connected | Disconnected | Message, now_ns: int) -> list[Effect]:
        """A link came or went, or a neighbour sent a message of cells."""
        assert isinstance(source, int)
        match message:
            case Connected():
                return self._connected(source, message, now_ns)
            case Disconnected():
                return self._disconnected(source, now_ns)
        neighbour = self.neighbours.get(source)
        if neighbour is None:
            return []
        self.counts.messages_in += 1
        if not neighbour.admits(self.settings, now_ns):
            self.counts.excess += 1
            return []
        try:
            if isinstance(message, CellHello):
                return self._hello(neighbour, message, now_ns)
            if not neighbour.joined:
                raise ProtocolError("a message before CellHello")
            return self._message(neighbour, message, now_ns)
        except ProtocolError as error:
            return self._refuse(neighbour, str(error))

    def _message(self, neighbour: Neighbour, message: Message, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        match message:
            case CellRecords(records):
                for hops, record in records:
                    effects += self._record(record, hops + 1, neighbour.port, now_ns)
            case CellLinks() if message.origin != self.me and message.origin not in self.directory:
                pass  # of a cell that has failed, or for which there is no room
            case CellLinks():
                changed, following = self._links.receive(neighbour.id, message, self._latest())
                if following is not None:
                    self._spread.links(following, neighbour.port)
                if changed:
                    self._reroute = True
            case CellPeers():
                effects = self._peers.receive(neighbour, message, now_ns)
            case CellResync():
                effects = self._peers.everything(neighbour.port)
            case CellWanted(on):
                neighbour.wants, self._follow = on, True
        return effects

    def _refuse(self, neighbour: Neighbour, reason: str) -> list[Effect]:
        self.counts.refused += 1
        return [Log("a message of a cell is ignored", "warning", {"cell": neighbour.name, "reason": reason})]

    # --- links

    def _connected(self, port: int, connected: Connected, now_ns: int) -> list[Effect]:
        if CAPABILITY not in connected.capabilities:
            return []
        effects = self._disconnected(port, now_ns) if port in self.neighbours else []
        neighbour = Neighbour(port, connected.name, now_ns, self.settings.burst, joins=connected.joins)
        neighbour.filled_ns = now_ns
        self.neighbours[port] = neighbour
        self._passive.add(port, now_ns)
        wanted = any(
            dial.name == connected.name and id in self.dialling.wanted for id, dial in self.dialling.dialled.items()
        )
        neighbour.wanted = wanted
        return [*effects, Send(port, CellHello(self._own_record(now_ns), self.settings.radius, wanted))]

    def _hello(self, neighbour: Neighbour, hello: CellHello, now_ns: int) -> list[Effect]:
        record = hello.record
        if neighbour.joined:
            raise ProtocolError("a second CellHello")
        if record.address.rpartition("/")[2] != neighbour.name:
            raise ProtocolError(f"it says that its address is {record.address[:80]!r}")
        if record.id == self.me or any(each.id == record.id for each in self.neighbours.values()):
            return self._collide(neighbour, record)
        before = self._stamped(record.id)
        outcome = self.directory.insert(record, 1, now_ns, self._wall_ms())
        if outcome == "collision":
            return self._collide(neighbour, record)
        if outcome == "invalid" or not record.alive:
            raise ProtocolError("its record is not that of a cell")
        neighbour.id, neighbour.wants = record.id, hello.wanted
        self._lost.pop(record.id, None)
        self.engine.set_cell(record.id, neighbour.port)
        self.dialling.connected(neighbour)
        if outcome == "new":
            self._adopt(record, before, neighbour.port, now_ns)
        self._follow = self._relink = self._reroute = True
        fields = {"cell": record.address, "names": len(record.names), "mesh": neighbour.joins}
        effects = [Log("a cell is a neighbour", "info", fields), *self._spread.everything(neighbour.port)]
        effects += [Send(neighbour.port, update) for update in self._links.to_pass_on()]
        return [*effects, *self._peers.everything(neighbour.port)]

    def _collide(self, neighbour: Neighbour, record: CellRecord) -> list[Effect]:
        """Two addresses with one id, or two nodes with one address: parcels could not tell them apart."""
        self.counts.refused += 1
        reason = f"the id of the cell {record.address[:80]} is taken by another one; rename its node"
        line = Log("cell refused", "error", {"cell": neighbour.name, "reason": reason})
        return [line, Close(neighbour.port, reason, "address")]

    def _disconnected(self, port: int, now_ns: int) -> list[Effect]:
        neighbour = self.neighbours.pop(port, None)
        if neighbour is None:
            return []
        self._passive.remove(port)
        if neighbour.joined:
            self.engine.set_cell(neighbour.id, -1)
            self._peers.forget(neighbour)
            self.dialling.lost(neighbour.id, now_ns)
            update_ns = self.settings.update_ns
            self._lost[neighbour.id] = (now_ns + update_ns // 2, now_ns + WATCHED_UPDATES * update_ns)
            self._follow = self._relink = self._reroute = True
        return []

    # --- records

    def _own_record(self, now_ns: int) -> CellRecord:
        """What this cell says of itself, anew if anything is."""
        stated, urls = self._stated, self._urls() if self.settings.reachable else ()
        if (
            self.names.changed or stated.urls != urls or stated.sequence <= self._floor or now_ns >= self._refresh_ns
        ):  # fmt: skip
            self._reroute = self._follow = True
            self.names.changed = False
            self._refresh_ns = now_ns + self.settings.refresh_ns
            sequence = max(self._floor, stated.sequence, self._wall_ms() - 1) + 1
            names, reachable = self.names.stamped(), self.settings.reachable
            self._stated = CellRecord(self.me, sequence, self.address, urls, reachable, names)
            self._spread.record(self._stated)
        return self._stated

    def _record(self, record: CellRecord, hops: int, port: int, now_ns: int) -> list[Effect]:
        """A record arrived: if it is new it is passed on."""
        before = self._stamped(record.id)
        outcome = self.directory.insert(record, hops, now_ns, self._wall_ms())
        match outcome:
            case "new":
                return self._adopt(record, before, port, now_ns)
            case "self":
                if record.sequence > self._stated.sequence or (
                    record.sequence == self._stated.sequence and not record.alive
                ):
                    self._floor = record.sequence  # somebody takes this cell for failed, or remembers its last life
            case "invalid" | "collision":
                self.counts.refused += 1
                return [Log("the record of a cell is ignored", "warning", {"cell": record.address, "why": outcome})]
        return []

    def _stamped(self, id: bytes) -> Collection[tuple[str, int]]:
        """The names of a cell, as its last record says them."""
        known = self.directory.get(id)
        return () if known is None else known.record.names

    def _adopt(
        self, record: CellRecord, before: Collection[tuple[str, int]], port: int, now_ns: int
    ) -> list[Effect]:  # fmt: skip
        """What follows from a record that is new; `before`: the names of the one that it replaces."""
        self._spread.record(record, port)
        self._settle({*self.trie.names_of(record.id), *(name for name, _ in record.names)}, now_ns)
        for name, _ in {*record.names}.difference(before):  # also one that it had, lost and has again
            self.router.readmit(name)
            self.engine.name_placed(name.encode())
        self._follow = True
        return [] if record.alive else self._failed(record)

    def _failed(self, record: CellRecord) -> list[Effect]:
        """A cell is no more: nothing goes by it, and nobody waits until it is forgotten."""
        self._links.forget(record.id)
        self._lost.pop(record.id, None)
        self._follow = self._reroute = True
        effects = self.dialling.failed(record.id)
        return [*effects, Log("a cell has failed", "info", {"cell": record.address})]

    def _settle(self, names: Iterable[str], now_ns: int) -> None:
        neighbours = [each for each in self.neighbours.values() if each.joined]
        for name in names:
            self._peers.settle(name, neighbours, now_ns)

    def _watch_lost(self, now_ns: int) -> list[Effect]:
        """Neighbours that were lost and that nobody else has a link to have failed."""
        effects: list[Effect] = []
        for id, (look_ns, watch_ns) in list(self._lost.items()):
            if now_ns < look_ns:
                continue
            if id in self.neighbourhood.hops and now_ns < watch_ns:
                self._lost[id] = (now_ns + self.settings.update_ns // 2, watch_ns)
                continue
            del self._lost[id]
            record = self.directory.failed(id) if id not in self.neighbourhood.hops else None
            if record is not None:
                effects += self._adopt_failure(record, now_ns)
        return effects

    def _adopt_failure(self, record: CellRecord, now_ns: int) -> list[Effect]:
        names = set(self.trie.names_of(record.id))
        self._spread.record(record)
        self._settle(names, now_ns)
        return self._failed(record)

    # --- time

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return (
            self._chooses or self._states or self._reroute or self.names.changed or bool(self._spread)
            or self._peers.busy or self.groups.busy or bool(self.trie.changed)
            or self._stated.sequence <= self._floor
        )  # fmt: skip

    @property
    def _chooses(self) -> bool:
        return self._follow and self.engine.mono_ns >= self._follow_ns

    @property
    def _states(self) -> bool:
        return self._relink and self.engine.mono_ns >= self._relink_ns

    def collect(self) -> None:
        """Take what the engine got for this machine: multicast parcels, and paths that are broken."""
        self.groups.collect()
        now_ns = self.engine.mono_ns
        for destination, hops in self.engine.take_broken():
            self.router.exclude(destination.decode(errors="replace"), hops, now_ns)
            self.engine.parcels_changed(destination)

    def work(self) -> list[Effect]:
        """A slice of what is to be done."""
        now_ns = self.engine.mono_ns
        effects: list[Effect] = []
        self._own_record(now_ns)
        if self._states:
            self._relink, self._relink_ns = False, now_ns + PAUSE_NS
            self._state_links(now_ns)
        self._take_changed()
        if self._chooses:
            self._follow, self._follow_ns = False, now_ns + PAUSE_NS
            effects += self.dialling.follow(now_ns)
        if self._spread:
            effects += self._spread.flush(self.neighbours.values())
        if self._reroute:
            self._reroute = False
            self.engine.parcels_changed()
        if self._peers.busy:
            effects += self._peers.work(list(self.neighbours.values()))
        self.groups.work(now_ns)
        return effects

    def _take_changed(self) -> None:
        """Names about which something was said: routes and links may be others, and the next update says so."""
        changed = self.trie.take_changed()
        if changed:
            self._peers.changed(changed)
            self._reroute = self._follow = True

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due: updates, links that were not answered, cells that are forgotten; then `work` while `busy`."""
        effects: list[Effect] = []
        self.engine.parcels_tick()
        self.collect()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._passive.look(now_ns)
        if self._lost:
            effects += self._watch_lost(now_ns)
        if now_ns >= self.dialling.next_ns():
            self._follow = True
        if now_ns >= self._update_ns:
            self._update_ns = now_ns + self.settings.update_ns
            effects += self._update(now_ns)
        return effects

    def next_tick(self) -> int:
        """When `tick` has something to do; at once while `busy`."""
        if self.busy:
            return 0
        parcels_ns = self.engine.parcels_next()
        lost_ns = min((look_ns for look_ns, _ in self._lost.values()), default=NEVER)
        follow_ns, relink_ns = self._follow_ns if self._follow else NEVER, self._relink_ns if self._relink else NEVER
        due_ns = min(self._update_ns, self.dialling.next_ns(), lost_ns, follow_ns, relink_ns)
        return due_ns if parcels_ns < 0 else min(due_ns, self.engine.mono_ns + parcels_ns)

    def _update(self, now_ns: int) -> list[Effect]:
        self._updates += 1
        self._state_links(now_ns, repeat=self._updates % REPEATED_LINKS == 0)
        self._links.sweep()
        for cell in self.directory.expire(now_ns - self.settings.lifetime_ns):
            self._links.forget(cell.record.id)
            self._settle((name for name, _ in cell.record.names), now_ns)
        near = {name for cell in self.neighbourhood.hops for name in self.trie.names_of(cell)}
        self.trie.trim(now_ns, near.union(self.dialling.near_names()))
        for destination in self.router.end_exclusions(now_ns):
            self.engine.parcels_changed(destination.encode())
        self._take_changed()
        self._peers.begin()
        self._follow = True
        return []

    def _state_links(self, now_ns: int, repeat: bool = False) -> None:
        """Say which links this cell has and what they carry, if that is new."""
        before = self.neighbourhood.generation
        links = {
            each.id: self._passive.bandwidth(each.port, self._trained(each.port), now_ns)
            for each in self.neighbours.values()
            if each.joined
        }
        update = self._links.own(links, repeat)
        if update is not None:
            self._spread.links(update)
        if self.neighbourhood.generation != before:
            self._reroute = True

    # --- routes

    def parcel_routes(self, destination: bytes) -> list[ParcelRoute]:
        """The paths to a destination, for the engine; none if there is no way, or it can be nobody's name."""
        self.counts.route_questions += 1
        try:
            name = check_destination(destination.decode())
        except ValueError:
            return []
        routes = self.router.routes(name, self.engine.mono_ns)
        self.counts.unreachable += not routes
        return routes

    # --- clocks

    def _wall_ms(self) -> int:
        return self.engine.wall_ns // 1_000_000

    def _latest(self) -> int:
        return min(self._wall_ms() + AHEAD_MS, MAX_SEQUENCE)
