"""Variables of a node: who may publish them, who watches them, and the static paths they take to peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from chappe.engine._engine import Engine
from chappe.node.directory import Directory, Entry
from chappe.node.outputs import Close, Output, Send
from chappe.node.sections import Config
from chappe.security.patterns import Pattern, variable_address
from chappe.wire.control import Announce, Retract, Variable

log = structlog.get_logger(__name__)

ANNOUNCED_AT_ONCE = 500  # variables in one message: with the longest names it stays below a megabyte
WATCH_PATH = 1 << 20  # paths above are watches of clients, paths below come from the configuration or a broker

PeerPort = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A `[[path]]` entry, ready to compare."""

    pattern: Pattern
    to: tuple[str, ...]
    interval_ns: int
    priority: int
    modes: int


def static_routes(config: Config) -> tuple[StaticRoute, ...]:
    """The `[[path]]` entries of a configuration."""
    return tuple(
        StaticRoute(
            Pattern.address(route.variables),
            route.to,
            round(route.interval_ms * 1_000_000),
            route.priority,
            sum(1 << mode for mode in set(route.modes)),
        )
        for route in config.path
    )


@dataclass(slots=True)
class _Pending:
    """What a peer has not been told yet; a dictionary, because order matters and repeats do not."""

    announced: dict[int, Variable] = field(default_factory=dict)
    retracted: dict[int, None] = field(default_factory=dict)


class Variables:
    """The directory, the status table of the engine and the static paths, kept in step.

    `peer_port(name)` is the port of a peer whether it is connected or not, None if it is unknown.
    """

    def __init__(
        self, engine: Engine, leaf: int, routes: Sequence[StaticRoute], peer_port: PeerPort, away_ns: int
    ) -> None:
        self.directory = Directory(leaf)
        self._engine = engine
        self._routes = tuple(routes)
        self._peer_port = peer_port
        self._away_ns = away_ns
        self._pending: dict[int, _Pending] = {}
        self._away: dict[int, None] = {}  # ids of variables that nobody publishes, oldest first
        self._unconfirmed: dict[int, tuple[int, set[int]]] = {}  # port -> (until when, ids to repeat)
        self._evicted: list[Output] = []

    # --- clients

    def register(self, port: int, owner_name: str, wanted: Variable) -> Entry | None:
        """The entry, its `variable.variable_id` filled in; None if the ids of this leaf are used up.

        The caller has checked that nobody else publishes it now.
        """
        entry = self.directory.named(wanted.publisher, wanted.variable)
        if entry is None:
            number = self.directory.issue(wanted.publisher, wanted.variable)
            if number is None:
                return None
            wanted.variable_id = number
            entry = self.directory.add(Entry(wanted))
        else:
            wanted.variable_id = entry.variable.variable_id
            entry.variable = wanted
        entry.owner, entry.owner_name = port, owner_name
        self._changed(entry)
        return entry

    def withdraw(self, entry: Entry, now_ns: int) -> None:
        """Its owner publishes it no more."""
        entry.owner = -1
        self._source_lost(entry, now_ns)

    def watch(self, entry: Entry, port: int, interval_ns: int, priority: int, modes: int) -> int:
        """Send it to that port; the answer is one of how many events the port gets."""
        path = entry.watchers.setdefault(port, WATCH_PATH + port)
        variable_id = entry.variable.variable_id
        return self._engine.watch(port, variable_id, path, [interval_ns], [priority], modes)

    def unwatch(self, entry: Entry, port: int) -> None:
        """Nothing of it goes to that port any more."""
        path = entry.watchers.pop(port, None)
        if path is not None:
            self._engine.status.terminate_path(entry.variable.variable_id, path)
            self._forget_if_unused(entry)

    def client_gone(self, port: int, owned: Iterable[int], watched: Iterable[int], now_ns: int) -> None:
        """Its port is closed; the engine takes the port out of the table by itself."""
        for variable_id in watched:
            entry = self.directory.numbered(variable_id)
            if entry is not None and entry.watchers.pop(port, None) is not None:
                self._forget_if_unused(entry)
        for variable_id in owned:
            entry = self.directory.numbered(variable_id)
            if entry is not None and entry.owner == port:
                self.withdraw(entry, now_ns)

    # --- peers

    def peer_up(self, port: int, fresh: bool, now_ns: int) -> None:
        """A link carries this port (again): tell the peer everything; `fresh`: it has restarted and will tell us."""
        pending = self._pending[port] = _Pending()
        for entry in self.directory:
            if any(target == port for _, target in entry.routes):
                pending.announced[entry.variable.variable_id] = entry.variable
        if fresh:
            known = {entry.variable.variable_id for entry in self.directory if port in entry.inputs}
            self._unconfirmed[port] = (now_ns + self._away_ns, known)

    def peer_down(self, port: int) -> None:
        """The link is lost. Table entries stay, so that the streams go on when it is back."""
        self._pending.pop(port, None)

    def peer_gone(self, port: int, now_ns: int) -> None:
        """The port of that peer is freed."""
        self._pending.pop(port, None)
        self._unconfirmed.pop(port, None)
        for entry in list(self.directory):
            for key in [key for key in entry.routes if key[1] == port]:
                del entry.routes[key]
            if port in entry.inputs:
                entry.inputs.discard(port)
                self._source_lost(entry, now_ns)

    def announced(self, port: int, variables: Iterable[Variable], now_ns: int) -> list[str]:
        """A peer will send these; the answer says what was refused and why."""
        refused = []
        for variable in variables:
            problem = self._announced(port, variable, now_ns)
            if problem:
                refused.append(problem)
        return refused

    def retracted(self, port: int, variable_ids: Iterable[int], now_ns: int) -> None:
        """A peer sends these no more."""
        for variable_id in variable_ids:
            entry = self.directory.numbered(variable_id)
            if entry is not None and port in entry.inputs:
                entry.inputs.discard(port)
                self._source_lost(entry, now_ns)

    # --- time and configuration

    def tick(self, now_ns: int) -> None:
        """Forget what nobody has published or confirmed for too long."""
        for port in [port for port, (deadline, _) in self._unconfirmed.items() if now_ns >= deadline]:
            _, missing = self._unconfirmed.pop(port)
            self.retracted(port, missing, now_ns)
        for variable_id in list(self._away):
            entry = self.directory.numbered(variable_id)
            if entry is None or entry.published:
                del self._away[variable_id]
            elif now_ns - entry.away_since_ns < self._away_ns:
                break
            elif not entry.watchers:
                self._drop(entry)

    def reroute(self, routes: Sequence[StaticRoute]) -> None:
        """Use other `[[path]]` entries from now on."""
        for entry in self.directory:
            before = self._targets(entry)
            for path in entry.routes.values():
                self._engine.status.terminate_path(entry.variable.variable_id, path)
            entry.routes.clear()
            self._route(entry, routes)
            for port in before - self._targets(entry):
                self._tell_retracted(port, entry)
        self._routes = tuple(routes)

    def flush(self) -> list[Output]:
        """What peers (and clients whose variables were renumbered) must be told now."""
        outputs, self._evicted = self._evicted, []
        for port, pending in self._pending.items():
            ids = tuple(pending.retracted)
            outputs += [Send(port, Retract(variable_ids=ids[at : at + 10_000])) for at in range(0, len(ids), 10_000)]
            told = tuple(pending.announced.values())
            step = ANNOUNCED_AT_ONCE
            outputs += [Send(port, Announce(variables=told[at : at + step])) for at in range(0, len(told), step)]
            pending.announced.clear()
            pending.retracted.clear()
        return outputs

    # --- how it is done

    def _announced(self, port: int, variable: Variable, now_ns: int) -> str:
        name = f"{variable.publisher}/{variable.variable}"
        entry = self.directory.named(variable.publisher, variable.variable)
        if entry is not None and entry.variable.variable_id != variable.variable_id:
            if entry.owner >= 0 or entry.inputs - {port}:
                return f"{name} has id {entry.variable.variable_id:#x} here and {variable.variable_id:#x} there"
            self._evict(entry)
            entry = None
        if entry is None:
            holder = self.directory.numbered(variable.variable_id)
            if holder is not None:
                if holder.owner >= 0 or holder.inputs - {port}:
                    return (
                        f"{name} comes with id {variable.variable_id:#x}, which {'/'.join(holder.name)} has: "
                        "give each node of the mesh its own node.leaf"
                    )
                self._evict(holder)
            entry = self.directory.add(Entry(variable))
        elif entry.owner < 0:
            entry.variable = variable
        entry.inputs.add(port)
        if port in self._unconfirmed:
            self._unconfirmed[port][1].discard(variable.variable_id)
        self._changed(entry)
        return ""

    def _changed(self, entry: Entry) -> None:
        variable = entry.variable
        entry.away_since_ns = 0
        self._engine.status.set_variable(
            variable.variable_id, variable.rate_num, variable.rate_den, inputs=entry.sources()
        )
        before = self._targets(entry)
        self._route(entry, self._routes)
        for port in before:  # rate or type may differ from what the peer was told
            self._tell_announced(port, entry)

    def _route(self, entry: Entry, routes: Sequence[StaticRoute]) -> None:
        address = Pattern.address(variable_address(*entry.name))
        before = self._targets(entry)
        for number, route in enumerate(routes):
            if not route.pattern.covers(address):
                continue
            for name in route.to:
                port = self._peer_port(name)
                if port is None or (number, port) in entry.routes or entry.sources() == [port]:
                    continue
                path = entry.routes[number, port] = entry.path()
                self._engine.status.setup_path(
                    entry.variable.variable_id, port, path, [route.interval_ns], [route.priority], route.modes
                )
        for port in self._targets(entry) - before:
            self._tell_announced(port, entry)

    def _targets(self, entry: Entry) -> set[int]:
        return {port for _, port in entry.routes}

    def _tell_announced(self, port: int, entry: Entry) -> None:
        pending = self._pending.get(port)
        if pending is not None:
            pending.announced[entry.variable.variable_id] = entry.variable

    def _tell_retracted(self, port: int, entry: Entry) -> None:
        pending = self._pending.get(port)
        if pending is not None:
            pending.announced.pop(entry.variable.variable_id, None)
            pending.retracted[entry.variable.variable_id] = None

    def _source_lost(self, entry: Entry, now_ns: int) -> None:
        variable = entry.variable
        self._engine.status.set_variable(
            variable.variable_id, variable.rate_num, variable.rate_den, inputs=entry.sources()
        )
        if not entry.published:
            entry.away_since_ns = now_ns
            self._away[variable.variable_id] = None
            self._forget_if_unused(entry)

    def _forget_if_unused(self, entry: Entry) -> None:
        """Away variables are kept for a while: their publisher or peer may come back."""
        if not entry.published and not entry.watchers and not entry.owner_name:
            self._drop(entry)

    def _evict(self, entry: Entry) -> None:
        """Its id now means something else: watchers must ask again, which they do when they reconnect."""
        self._evicted += [
            Close(port, f"variable {'/'.join(entry.name)} has a new id; connect again", "address")
            for port in entry.watchers
        ]
        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        self._away.pop(entry.variable.variable_id, None)
        for port in self._targets(entry):
            self._tell_retracted(port, entry)
        self._engine.status.drop_variable(entry.variable.variable_id)
        self.directory.remove(entry)
