"""The paths, floodings and placed outputs that brokers have set in this node, kept in step with the engine's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chappe.core.directory import FLOODED, PATHS, PLACED, Entry
from chappe.core.neighbours import NeighbourRules
from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.engine._status import UnknownVariableError
from chappe.security.rules import RuleBook
from chappe.wire.constants import MODES
from chappe.wire.control import Variable
from chappe.wire.management import Path

MAX_BROKER_PATH = (1 << 20) - 1
NOWHERE = -1  # port of a path that begins or ends here
BROKER_PATHS = 1 << 31  # numbers of the engine's paths from here on belong to brokers

_Terms = tuple[int, tuple[int, ...], tuple[int, ...], int]


class PathError(ValueError):
    """A path or flooding that makes no sense here; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A path as it is in force."""

    path: Path
    source: int  # port, NOWHERE: published here
    target: int  # port, NOWHERE: it ends here

    @property
    def terms(self) -> _Terms:
        """What the engine must know; paths that agree in it are one there."""
        return self.target, self.path.intervals_ns, self.path.priorities, self.path.modes


@dataclass(slots=True)
class _Shared:
    """A path of the engine and how many paths of brokers it stands for."""

    number: int
    users: int = 0


@dataclass(slots=True)
class _VariablePaths:
    """All paths of one variable."""

    hops: dict[int, Hop] = field(default_factory=dict)  # by path
    sources: Counter[int] = field(default_factory=Counter)  # port -> how many come from there
    targets: dict[_Terms, _Shared] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(sorted(port for port in self.sources if port != NOWHERE))


class PathTable:
    """Changes are all or none; a path is replaced in place, so that no event is lost between two forms of it (GS-073).

    However many paths leave by one link on the same terms, the engine has one for them. The inputs permitted for a
    variable are the sources of its paths and its publisher here; with the last path, publisher, watcher and flooding
    its entry is gone. `link_port(name)` is the port of a link, None if it is unknown.
    """

    def __init__(
        self, engine: Engine, variables: Variables, link_port: Callable[[str], int | None],
        rules: NeighbourRules | None = None, links: Callable[[], Iterable[str]] = tuple,
    ) -> None:  # fmt: skip
        """`rules`: what neighbours may do; `links`: the names of all."""
        self._rules = rules or NeighbourRules(RuleBook.open())
        self._links = links
        self._engine = engine
        self._variables = variables
        self._link_port = link_port
        self._by_variable: dict[int, _VariablePaths] = {}  # by variable
        self._next = BROKER_PATHS
        self._flooded: dict[int, tuple[int, ...]] = {}  # variable -> level by mode
        self._placed: set[int] = set()

    def __len__(self) -> int:
        return sum(len(here.hops) for here in self._by_variable.values())

    @property
    def empty(self) -> bool:
        """Whether brokers have left nothing here."""
        return not (self._by_variable or self._flooded or self._placed)

    def setup(self, paths: Sequence[Path]) -> None:
        """Add or replace paths, all or none; PathError says which one cannot be."""
        hops = [self._checked(path) for path in paths]
        before: list[tuple[int, int, Hop | None, Variable | None]] = []
        try:
            for hop in hops:
                number = hop.path.variable.variable_id
                entry = self._variables.directory.numbered(number)
                here = self._by_variable.get(number)
                known = here.hops.get(hop.path.path) if here else None
                before.append((number, hop.path.path, known, entry.variable if entry else None))
                self._put(hop)
        except (ValueError, KeyError, OverflowError) as error:
            for number, path, old, variable in reversed(before):
                self._restore(number, path, old, variable)
            raise PathError(str(error.args[0] if error.args else error)) from None

    def teardown(self, paths: Iterable[tuple[int, int]], now_ns: int) -> None:
        """Remove paths (variable, path); one that is not there is no error."""
        for number, path in paths:
            self._take(number, path, now_ns)

    def flood(self, variable: Variable, levels: Sequence[int], now_ns: int) -> None:
        """Flood a variable to that level in each of the 16 modes, 0: route it by its paths (GS-100)."""
        if len(levels) != MODES or not all(0 <= level <= 255 for level in levels):
            raise PathError(f"{_named(variable)}: levels {tuple(levels)[:17]} are not 16 numbers in 0 .. 255")
        for peer in self._links() if any(levels) else ():
            decision = self._rules.watches(peer, variable.publisher, variable.variable)
            if not decision:  # it would go to every neighbour
                raise PathError(decision.reason)
        entry = self._enter(variable)
        number, status = variable.variable_id, self._engine.status
        masks: dict[int, int] = {}
        for mode, level in enumerate(levels):
            masks[level] = masks.get(level, 0) | 1 << mode
        for level, modes in masks.items():
            if level:
                status.set_flooding(number, level, modes)
            else:
                status.clear_flooding(number, modes)
        if any(levels):
            self._flooded[number] = tuple(levels)
            self._variables.hold(entry, FLOODED)
        else:
            self._flooded.pop(number, None)
            self._variables.release(entry, FLOODED, now_ns)

    def place(self, output: Variable) -> None:
        """A function will publish this here under the id that was issued for it."""
        self._variables.hold(self._enter(output), PLACED)
        self._placed.add(output.variable_id)

    def displace(self, variable_id: int, now_ns: int) -> None:
        """No function publishes it here any more."""
        entry = self._variables.directory.numbered(variable_id)
        if variable_id in self._placed and entry is not None:
            self._placed.discard(variable_id)
            self._variables.withdraw(entry, now_ns)
            self._variables.release(entry, PLACED, now_ns)

    def reset(self, now_ns: int) -> None:
        """Forget everything that brokers have set."""
        self.teardown([(number, path) for number, here in self._by_variable.items() for path in here.hops], now_ns)
        for number in list(self._flooded):
            entry = self._variables.directory.numbered(number)
            if entry is not None:
                self.flood(entry.variable, (0,) * MODES, now_ns)
        for number in list(self._placed):
            self.displace(number, now_ns)

    def port_gone(self, port: int, now_ns: int) -> None:
        """The port of a link is about to be freed: its paths are over."""
        over = [(number, path) for number, here in self._by_variable.items() for path, hop in here.hops.items()
                if port in (hop.source, hop.target)]  # fmt: skip
        self.teardown(over, now_ns)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row a path, for `List(what="paths")`."""
        for here in list(self._by_variable.values()):
            for number, hop in sorted(here.hops.items()):
                path = hop.path
                yield {
                    "publisher": path.variable.publisher,
                    "variable": path.variable.variable,
                    "id": path.variable.variable_id,
                    "path": number,
                    "source": path.source,
                    "target": path.target,
                    "intervals_ns": list(path.intervals_ns),
                    "priorities": list(path.priorities),
                    "modes": path.modes,
                    "flooding": list(self._flooded.get(path.variable.variable_id, ())),
                }

    # --- how it is done

    def _checked(self, path: Path) -> Hop:
        where = f"path {path.path} of {_named(path.variable)}"
        if not 0 < path.path <= MAX_BROKER_PATH:
            raise PathError(f"{where}: its number is not in 1 .. {MAX_BROKER_PATH}")
        for what, values in (("intervals_ns", path.intervals_ns), ("priorities", path.priorities)):
            if len(values) not in (1, MODES):
                raise PathError(f"{where}: {what} has {len(values)} entries; give one for all modes, or 16")
        if path.source and path.source == path.target:
            raise PathError(f"{where}: it comes from {path.source!r} and goes back there")
        self._permitted(path)
        return Hop(path, self._port(where, path.source), self._port(where, path.target))

    def _permitted(self, path: Path) -> None:
        """Deny rules for neighbours hold for what brokers set up, too."""
        name = path.variable.publisher, path.variable.variable
        for peer, decide in ((path.source, self._rules.registers), (path.target, self._rules.watches)):
            decision = decide(peer, *name) if peer else None
            if decision is not None and not decision:
                raise PathError(decision.reason)

    def recheck(self, now_ns: int) -> list[str]:
        """Other rules hold: paths that they deny are over; why."""
        over, reasons = [], []
        for number, here in self._by_variable.items():
            for path, hop in here.hops.items():
                try:
                    self._permitted(hop.path)
                except PathError as error:
                    over.append((number, path))
                    reasons.append(str(error))
        self.teardown(over, now_ns)
        return reasons

    def _port(self, where: str, name: str) -> int:
        if not name:
            return NOWHERE
        port = self._link_port(name)
        if port is None:
            raise PathError(f"{where}: there is no link named {name!r}")
        return port

    def _enter(self, variable: Variable) -> Entry:
        known = self._variables.directory.numbered(variable.variable_id)
        if known is not None and known.held and known.name != (variable.publisher, variable.variable):
            raise PathError(f"{_named(variable)}: {'/'.join(known.name)} has this id")
        try:
            return self._variables.enter(variable)
        except (ValueError, OverflowError) as error:
            raise PathError(f"{_named(variable)}: {error.args[0] if error.args else error}") from None

    def _put(self, hop: Hop) -> None:
        number = hop.path.variable.variable_id
        entry = self._enter(hop.path.variable)
        hop.path.variable = entry.variable  # one object for all its paths
        here = self._by_variable.get(number) or _VariablePaths()
        old = here.hops.get(hop.path.path)
        if old is None or old.terms != hop.terms:
            self._forward(number, here, hop)
            if old is not None:
                self._stop(number, here, old)
        self._by_variable[number] = here
        here.hops[hop.path.path] = hop
        self._variables.hold(entry, PATHS)
        if old is None or old.source != hop.source:
            here.sources[hop.source] += 1
            if old is not None:
                _less(here.sources, old.source)
            self._variables.feed(entry, here.inputs)

    def _take(self, number: int, path: int, now_ns: int) -> None:
        here = self._by_variable.get(number)
        hop = here.hops.pop(path, None) if here is not None else None
        if here is None or hop is None:
            return
        self._stop(number, here, hop)
        _less(here.sources, hop.source)
        if not here.hops:
            del self._by_variable[number]
        entry = self._variables.directory.numbered(number)
        if entry is None:
            return
        self._variables.feed(entry, here.inputs)
        if not here.hops:
            self._variables.release(entry, PATHS, now_ns)

    def _forward(self, number: int, here: _VariablePaths, hop: Hop) -> None:
        """The engine forwards on these terms, if it does not already."""
        if hop.target == NOWHERE:
            return
        known = here.targets.get(hop.terms)
        if known is None:
            path, self._next = hop.path, self._next + 1
            self._engine.status.setup_path(
                number, hop.target, self._next, path.intervals_ns, path.priorities, path.modes
            )
            known = here.targets[hop.terms] = _Shared(self._next)
        known.users += 1

    def _stop(self, number: int, here: _VariablePaths, hop: Hop) -> None:
        """One path less has these terms."""
        if hop.target == NOWHERE:
            return
        known = here.targets[hop.terms]
        known.users -= 1
        if not known.users:
            del here.targets[hop.terms]
            with suppress(UnknownVariableError):
                self._engine.status.terminate_path(number, known.number)

    def _restore(self, number: int, path: int, old: Hop | None, variable: Variable | None) -> None:
        if old is None:
            self._take(number, path, 0)
        if variable is not None:
            self._variables.enter(variable)
            if old is not None:
                self._put(old)
            return
        entry = self._variables.directory.numbered(number)
        if entry is not None and number not in self._by_variable:
            self._variables.release(entry, PATHS, 0)


def _less(counts: Counter[int], port: int) -> None:
    counts[port] -= 1
    if not counts[port]:
        del counts[port]


def _named(variable: Variable) -> str:
    return f"{variable.publisher}/{variable.variable} ({variable.variable_id:#x})"
