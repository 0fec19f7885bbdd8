"""Variables of a node: who may publish them, who watches them, and the static paths they take to peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat

import structlog

from chappe.core.announcements import Announcements
from chappe.core.demand import terms_by_mode
from chappe.core.directory import Directory, Entry
from chappe.core.flows import Asks, Flows, MaySend
from chappe.core.mesh_variables import ANYTHING, DISCOVERED, MeshVariables
from chappe.core.sections import Config
from chappe.engine._engine import Engine
from chappe.engine._status import UnknownVariableError
from chappe.events.asked import Asked
from chappe.machine import NEVER, RECONNECT, Close, Effect, FreePort
from chappe.security.patterns import AddressPattern, variable_address
from chappe.wire.control import Demanded, DemandTerm, Variable

log = structlog.get_logger(__name__)

WATCH_PATH = 1 << 20  # paths above are watches of clients, paths below come from the configuration or a broker
SLICE = 100  # entries handled in one turn of the loop when a client with many variables leaves

PeerPort = Callable[[str], int | None]
Seek = Callable[[str, bool], None]  # look for variables in the mesh that match a pattern, or no more
LAPSE_NS = 5_000_000_000  # after a link in the mesh is lost what came by it is not expected back


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A `[[path]]` entry, ready to compare."""

    key: str  # the same for equal entries
    pattern: AddressPattern
    to: tuple[str, ...]
    interval_ns: int
    priority: int
    modes: int

    @property
    def term(self) -> DemandTerm:
        """What goes there at most."""
        return DemandTerm(self.interval_ns, self.priority, self.modes)


def static_routes(config: Config) -> tuple[StaticRoute, ...]:
    """The `[[path]]` entries of a configuration."""
    routes = []
    for route in config.path:
        interval_ns, modes = round(route.interval_ms * 1_000_000), sum(1 << mode for mode in set(route.modes))
        key = f"{route.variables} {interval_ns} {route.priority} {modes}"
        pattern = AddressPattern.address(route.variables)
        routes.append(StaticRoute(key, pattern, route.to, interval_ns, route.priority, modes))
    return tuple(routes)


class Variables:
    """The directory, the status table of the engine and the static paths, kept in step.

    A static path says what a peer may have. One that states what it wants gets that much of it, and this node states
    what it wants of what peers announce: so a link carries what is wanted behind it. A peer that cannot state it gets
    all of its paths. `peer_port(name)` is the port of a peer whether it is connected or not, None if it is unknown.
    """

    def __init__(
        self, engine: Engine, leaf: int, routes: Sequence[StaticRoute], peer_port: PeerPort, away_ns: int,
        may_send: MaySend = lambda peer, publisher, variable: True,
        address: str = "", seek: Seek = lambda pattern, on: None, asks: Asks = lambda port, name, origin: Asked.YES,
        discovered: DemandTerm = ANYTHING,
    ) -> None:  # fmt: skip
        """`address`: of this node in its mesh, if it is in one; `discovered`: what neighbours there get at most."""
        self.directory = Directory(leaf)
        self._engine = engine
        self._routes = tuple(routes)
        self._peer_port = peer_port
        self._away_ns = away_ns
        self._announcements = Announcements(address)
        self._flows = Flows(engine, self.directory, self._announcements, may_send, asks)
        self.mesh = MeshVariables(address, self.directory, self._flows, discovered)
        self.seek = seek
        self._inputs: dict[int, set[int]] = {}  # port -> ids that its peer announced
        self.came: deque[Entry] | None = None  # variables that are published again or for the first time, if asked for
        self.behind = False  # more is to be forgotten than one tick does
        self._away: deque[int] = deque()  # ids of variables that nobody publishes, oldest first
        self._unconfirmed: dict[int, tuple[int, set[int]]] = {}  # port -> (until when, ids to repeat)
        self._leaving: deque[tuple[int, set[int], set[int], int]] = deque()
        self._evicted: list[Effect] = []

    # --- clients

    def register(self, port: int, owner_name: str, wanted: Variable) -> Entry | None:
        """The entry, its `variable.variable_id` filled in; None if the ids of this leaf are used up.

        The caller has checked that nobody else publishes it now.
        """
        if wanted.variable_id:  # issued by a broker
            return self._own(self.enter(wanted), port, owner_name)
        entry = self.directory.named(wanted.publisher, wanted.variable)
        number = self.directory.issue(wanted.publisher) if entry is None else entry.variable.variable_id
        if number is None:
            return None
        wanted.variable_id = number
        self._engine.status.set_variable(number, wanted.rate_num, wanted.rate_den)
        if entry is None:
            entry = self.directory.add(Entry(wanted))
        else:
            self.directory.replace(entry, wanted)
        return self._own(entry, port, owner_name)

    def _own(self, entry: Entry, port: int, owner_name: str) -> Entry:
        self._note_coming(entry)
        entry.origin = ""
        self._engine.status.add_input(entry.variable.variable_id, port)
        entry.owner, entry.owner_name = port, owner_name
        self._changed(entry)
        return entry

    def withdraw(self, entry: Entry, now_ns: int) -> None:
        """Its owner publishes it no more and is not expected back."""
        owner, entry.owner, entry.owner_name = entry.owner, -1, ""
        self._forbid(entry, owner)
        self._source_lost(entry, now_ns)

    def watch(
        self, entry: Entry, port: int, intervals_ns: list[int], priorities: list[int], modes: int,
        promised: bool = False,
    ) -> int:  # fmt: skip
        """Send it to that port; the answer is one of how many events the port gets, in the lowest of the modes.

        `promised`: a broker brings it here, so nothing is looked for or demanded.
        """
        path = WATCH_PATH + port
        every = self._engine.watch(port, entry.variable.variable_id, path, intervals_ns, priorities, modes)
        entry.watchers[port] = path
        if promised:
            return every
        if not entry.sought:
            entry.sought = True
            self.seek(variable_address(*entry.name), True)
        self._flows.serve(entry, port, dict.fromkeys(terms_by_mode(intervals_ns, priorities, modes), path))
        return every

    def retune(self, entry: Entry, port: int, intervals_ns: list[int], priorities: list[int], modes: int) -> int:
        """Other terms for what a port was promised, in place: nothing is sent again and nothing is missed."""
        path, number = entry.watchers[port], entry.variable.variable_id
        return int(self._engine.status.setup_path(number, port, path, intervals_ns, priorities, modes))

    def unwatch(self, entry: Entry, port: int) -> None:
        """Nothing of it goes to that port any more."""
        path = entry.watchers.pop(port, None)
        if path is not None:
            with suppress(UnknownVariableError):
                self._engine.status.terminate_path(entry.variable.variable_id, path)
            self._unwatched(entry, port)

    def abandoned(self, entry: Entry) -> None:
        """Its owner is away and not expected back."""
        entry.owner_name = ""
        self._forget_if_unused(entry)

    def client_gone(self, port: int, owned: set[int], watched: set[int], now_ns: int) -> None:
        """Its port is closed: `work` empties the sets bit by bit and then says that the port may be freed."""
        self._leaving.append((port, owned, watched, now_ns))

    # --- peers

    def peer_up(self, port: int, fresh: bool, now_ns: int, states: bool = False) -> None:
        """A link carries this port (again): announce everything; `fresh`: the peer has restarted and announces, too.

        `states`: it states what it wants. What it stated before it restarted is forgotten, bit by bit.
        """
        self._flows.peer_up(port, fresh, states)
        if fresh and self._inputs.get(port):
            self._unconfirmed[port] = (now_ns + self._away_ns, set(self._inputs[port]))

    def peer_down(self, port: int, now_ns: int) -> None:
        """The link is lost. Table entries stay, so that streams go on when it is back.

        What was discovered in the mesh comes another way by then: it stays for a moment, in which copies are known.
        """
        self._announcements.close(port)
        entries = ((number, self.directory.numbered(number)) for number in self._inputs.get(port, ()))
        discovered = {number for number, entry in entries if entry is not None and entry.origin}
        if discovered:
            self._unconfirmed[port] = (now_ns + LAPSE_NS, discovered)

    def peer_gone(self, port: int, now_ns: int) -> None:
        """The port of that peer is about to be freed."""
        self._announcements.close(port)
        self._unconfirmed.pop(port, None)
        self._flows.peer_gone(port)
        self.retracted(port, list(self._inputs.pop(port, ())), now_ns)

    def announced_by(self, port: int) -> list[Variable]:
        """What a peer said that it sends."""
        entries = (self.directory.numbered(number) for number in self._inputs.get(port, ()))
        return [entry.variable for entry in entries if entry is not None]

    def announced_ids(self, port: int) -> Set[int]:
        """Of what a peer said that it sends."""
        return self._inputs.get(port, frozenset())

    def announced(self, port: int, variables: Iterable[Variable], origins: Iterable[str] = ()) -> list[str]:
        """A peer will send these; the answer says what was refused and why. `origins`: where they are published."""
        pairs = zip(variables, chain(origins, repeat("")), strict=False)
        return [problem for variable, origin in pairs if (problem := self._announced(port, variable, origin))]

    def retracted(self, port: int, variable_ids: Iterable[int], now_ns: int) -> None:
        """A peer sends these no more."""
        for variable_id in variable_ids:
            entry = self.directory.numbered(variable_id)
            if entry is not None and port in entry.inputs:
                entry.inputs = tuple(other for other in entry.inputs if other != port)
                self._inputs.get(port, set()).discard(variable_id)
                self._forbid(entry, port)
                if entry.demand is not None:
                    entry.demand.forget(port)
                self._source_lost(entry, now_ns)

    def demanded(self, port: int, wanted: Iterable[Demanded]) -> list[str]:
        """A peer states what it wants of variables; the answer says what was refused and why."""
        return self._flows.demanded(port, wanted)

    # --- time and configuration

    def tick(self, now_ns: int) -> None:
        """Forget what nobody has published or confirmed for too long."""
        for port in [port for port, (deadline, _) in self._unconfirmed.items() if now_ns >= deadline]:
            _, missing = self._unconfirmed.pop(port)
            self.retracted(port, missing, now_ns)
        self._flows.tick(now_ns)
        self.behind = len(self._away) > SLICE
        for _ in range(min(SLICE, len(self._away))):
            entry = self.directory.numbered(self._away[0])
            if entry is not None and entry.away_since_ns:
                if now_ns - entry.away_since_ns < self._away_ns:
                    self.behind = False
                    break
                entry.owner_name = ""
                self._forget_if_unused(entry)
            self._away.popleft()

    def next_tick(self) -> int:
        """When something is to be forgotten, or a route to be ended."""
        next_ns = min((deadline for deadline, _ in self._unconfirmed.values()), default=NEVER)
        next_ns = min(next_ns, self._flows.next_tick())
        if self._away:
            entry = self.directory.numbered(self._away[0])
            since_ns = entry.away_since_ns if entry is not None else 0
            next_ns = min(next_ns, since_ns + self._away_ns if since_ns else 0)
        return next_ns

    @property
    def busy(self) -> bool:
        """Whether `work` or `flush` has something to do."""
        return bool(
            self._leaving or self._evicted or self._flows.busy or self._announcements.waiting or self.mesh.busy
        )  # fmt: skip

    def work(self) -> list[Effect]:
        """A slice of what clients that left have left behind, and of what peers stated before they restarted."""
        left = SLICE
        self._flows.work()
        self.mesh.work()
        while self._leaving:
            port, owned, watched, since_ns = self._leaving[0]
            while left and watched:
                left -= 1
                self._watcher_gone(watched.pop(), port)
            while left and owned:
                left -= 1
                self._owner_gone(owned.pop(), port, since_ns)
            if owned or watched:
                break
            self._leaving.popleft()
            return [FreePort(port)]
        return []

    def reroute(self, routes: Sequence[StaticRoute]) -> Iterator[None]:
        """Use other `[[path]]` entries from now on; stops after each variable. Paths that stay are not interrupted."""
        self._routes = tuple(routes)
        wanted = {
            (route.key, port) for route in routes for name in route.to if (port := self._peer_port(name)) is not None
        }
        names = {port: name for route in routes for name in route.to if (port := self._peer_port(name)) is not None}
        for entry in self.directory.walk():
            over = [
                key for key in entry.routes
                if not self._flows.may(entry, self.mesh.name(key[1]) if key[0] == DISCOVERED else names.get(key[1], ""))
                or (key not in wanted and key[0] != DISCOVERED)
            ]  # fmt: skip
            self._flows.withdraw(entry, over)
            self._route(entry)
            yield

    def flush(self) -> list[Effect]:
        """What peers (and clients whose variables were renumbered) must be sent now."""
        effects, self._evicted = self._evicted, []
        return [*effects, *self._announcements.take()]

    # --- brokers

    def enter(self, variable: Variable) -> Entry:
        """The entry of a variable that a broker knows, made or changed in place; ValueError changes nothing."""
        entry = self.directory.numbered(variable.variable_id)
        if entry is not None and entry.variable == variable:
            return entry
        self._engine.status.set_variable(variable.variable_id, variable.rate_num, variable.rate_den)
        if entry is not None and entry.name != (variable.publisher, variable.variable):
            self._evict(entry)
            self._engine.status.set_variable(variable.variable_id, variable.rate_num, variable.rate_den)
            entry = None
        if entry is None:
            return self.directory.add(Entry(variable))
        self.directory.replace(entry, variable)
        return entry

    def hold(self, entry: Entry, why: int) -> None:
        """A broker needs the entry."""
        entry.held |= why

    def release(self, entry: Entry, why: int, now_ns: int) -> None:
        """It needs it no more for that."""
        entry.held &= ~why
        if not entry.published:
            self._source_lost(entry, now_ns)
        self._forget_if_unused(entry)

    def feed(self, entry: Entry, sources: tuple[int, ...]) -> None:
        """Paths of brokers bring it from these ports, and from no others."""
        before, entry.sources = entry.sources, sources
        for port in sources:
            if port not in before:
                self._engine.status.add_input(entry.variable.variable_id, port)
        for port in before:
            if port not in sources:
                self._forbid(entry, port)
        if sources:
            entry.away_since_ns = 0

    # --- how it is done

    def _announced(self, port: int, variable: Variable, origin: str) -> str:
        if origin and origin == self.mesh.address:
            return ""  # it comes from here
        name, number = f"{variable.publisher}/{variable.variable}", variable.variable_id
        entry = self.directory.named(variable.publisher, variable.variable)
        if entry is not None and entry.variable.variable_id != number:
            if entry.owner >= 0 or entry.held or set(entry.inputs) - {port}:
                return f"{name} has id {entry.variable.variable_id:#x} here and {number:#x} there"
            self._evict(entry)
            entry = None
        holder = self.directory.numbered(number)
        if entry is None and holder is not None:
            if holder.owner >= 0 or holder.held or set(holder.inputs) - {port}:
                taken = f"{name} comes with id {number:#x}, which {'/'.join(holder.name)} has"
                return f"{taken}: give each node of the mesh its own node.leaf"
            self._evict(holder)
        try:
            if entry is None or not entry.held:  # else its broker says what it is
                self._engine.status.set_variable(number, variable.rate_num, variable.rate_den)
        except ValueError as error:
            return f"{name}: {error}"
        self._engine.status.add_input(number, port)
        known = entry is not None and (entry.variable, entry.origin) == (variable, origin)
        if entry is None:
            entry = self.directory.add(Entry(variable))
        elif entry.owner < 0 and not entry.held and not known:
            self.directory.replace(entry, variable)
        if entry.owner < 0:
            entry.origin = origin
        self._note_coming(entry)
        if port not in entry.inputs:
            entry.inputs = (*entry.inputs, port)
            self._inputs.setdefault(port, set()).add(number)
        if port in self._unconfirmed:
            self._unconfirmed[port][1].discard(number)
        before = entry.demand.forget(port) if entry.demand is not None else ()
        self._changed(entry, known)
        if before:  # it may have forgotten it, or not
            self._flows.demand(entry, again=port)
        return ""

    def _note_coming(self, entry: Entry) -> None:
        """It is about to be published, perhaps again."""
        if self.came is not None and not entry.published:
            self.came.append(entry)

    def _changed(self, entry: Entry, known: bool = False) -> None:
        """It has a source (again); peers that know it learn its rate and type, others that it exists.

        `known`: it is what it was, and who knows it has nothing to learn. Else it would be repeated in circles where
        nodes announce it to each other for a moment.
        """
        entry.away_since_ns = 0
        self.mesh.count_rooted(entry)
        self._route(entry)
        for port in entry.targets() if not known else ():
            self._announcements.announce(port, entry)
        self._flows.demand(entry)

    def _route(self, entry: Entry) -> None:
        self.mesh.route(entry)
        if not self._routes:
            return
        address = AddressPattern.address(variable_address(*entry.name))
        for route in self._routes:
            if not route.pattern.covers(address):
                continue
            for name in route.to:
                port = self._peer_port(name)
                if port is not None:
                    self._flows.offer(entry, route.key, name, port, route.term)

    def _forbid(self, entry: Entry, port: int) -> None:
        if port >= 0 and not entry.permits(port):
            with suppress(UnknownVariableError):
                self._engine.status.remove_input(entry.variable.variable_id, port)

    def _watcher_gone(self, variable_id: int, port: int) -> None:
        entry = self.directory.numbered(variable_id)
        if entry is not None and entry.watchers.pop(port, None) is not None:
            self._unwatched(entry, port)

    def _unwatched(self, entry: Entry, port: int) -> None:
        self._flows.serve(entry, port, {})
        if not entry.watchers:
            self._seek_no_more(entry)
        self._forget_if_unused(entry)

    def _seek_no_more(self, entry: Entry) -> None:
        if entry.sought:
            entry.sought = False
            self.seek(variable_address(*entry.name), False)

    def _owner_gone(self, variable_id: int, port: int, since_ns: int) -> None:
        entry = self.directory.numbered(variable_id)
        if entry is not None and entry.owner == port:
            entry.owner = -1
            self._source_lost(entry, since_ns)

    def _source_lost(self, entry: Entry, now_ns: int) -> None:
        self._flows.demand(entry)
        self.mesh.count_rooted(entry)
        if not entry.published and not entry.away_since_ns:
            entry.away_since_ns = now_ns
            self._away.append(entry.variable.variable_id)
            self._forget_if_unused(entry)

    def _forget_if_unused(self, entry: Entry) -> None:
        """A variable whose client is expected back is kept for a while, one that is watched until it is not."""
        self.mesh.count_rooted(entry)
        known = self.directory.numbered(entry.variable.variable_id) is entry
        if known and not (entry.published or entry.watchers or entry.owner_name or entry.held):
            self._drop(entry)

    def _evict(self, entry: Entry) -> None:
        """Its id now means something else: watchers must ask again, which they do when they reconnect."""
        reason = f"variable {'/'.join(entry.name)} has a new id; connect again"
        self._evicted += [Close(port, reason, RECONNECT) for port in entry.watchers]
        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        number = entry.variable.variable_id
        self._seek_no_more(entry)
        self.mesh.root(entry, False)
        self._flows.withdraw(entry, list(entry.routes))
        for port in entry.inputs:
            self._inputs.get(port, set()).discard(number)
        with suppress(UnknownVariableError):
            self._engine.status.drop_variable(number)
        self.directory.remove(entry)
