"""The paths, floodings and placed outputs that brokers have set in this node, kept in step with the engine's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chappe.engine._engine import Engine
from chappe.engine._status import UnknownVariableError
from chappe.node.directory import FLOODED, PATHS, PLACED, Entry
from chappe.node.variables import Variables
from chappe.wire.control import Variable
from chappe.wire.management import Path

MODES = 16
MAX_BROKER_PATH = (1 << 20) - 1  # paths above belong to watches and to the configuration
NOWHERE = -1  # port of a path that begins or ends here


class PathError(ValueError):
    """A path or flooding that makes no sense here; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A path as it is in force."""

    path: Path
    source: int  # port, NOWHERE: published here
    target: int  # port, NOWHERE: it ends here


class PathTable:
    """Changes are all or none; a path is replaced in place, so that no event is lost between two forms of it (GS-073).

    The inputs permitted for a variable are the sources of its paths and its publisher here; with the last path,
    publisher, watcher and flooding its entry is gone. `link_port(name)` is the port of a link, None if it is unknown.
    """

    def __init__(self, engine: Engine, variables: Variables, link_port: Callable[[str], int | None]) -> None:
        self._engine = engine
        self._variables = variables
        self._link_port = link_port
        self._hops: dict[int, dict[int, Hop]] = {}  # variable -> path -> hop
        self._flooded: dict[int, tuple[int, ...]] = {}  # variable -> level by mode
        self._placed: set[int] = set()

    def __len__(self) -> int:
        return sum(len(hops) for hops in self._hops.values())

    @property
    def empty(self) -> bool:
        """Whether brokers have left nothing here."""
        return not (self._hops or self._flooded or self._placed)

    def setup(self, paths: Sequence[Path]) -> None:
        """Add or replace paths, all or none; PathError says which one cannot be."""
        hops = [self._checked(path) for path in paths]
        before: list[tuple[int, int, Hop | None, Variable | None]] = []
        try:
            for hop in hops:
                number = hop.path.variable.variable_id
                entry = self._variables.directory.numbered(number)
                known = self._hops.get(number, {}).get(hop.path.path)
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
        self.teardown([(number, path) for number, hops in self._hops.items() for path in hops], now_ns)
        for number in list(self._flooded):
            entry = self._variables.directory.numbered(number)
            if entry is not None:
                self.flood(entry.variable, (0,) * MODES, now_ns)
        for number in list(self._placed):
            self.displace(number, now_ns)

    def port_gone(self, port: int, now_ns: int) -> None:
        """The port of a link is about to be freed: its paths are over."""
        over = [(number, path) for number, hops in self._hops.items() for path, hop in hops.items()
                if port in (hop.source, hop.target)]  # fmt: skip
        self.teardown(over, now_ns)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row a path, for `List(what="paths")`."""
        for hops in list(self._hops.values()):
            for number, hop in sorted(hops.items()):
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
        return Hop(path, self._port(where, path.source), self._port(where, path.target))

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
        path, status = hop.path, self._engine.status
        number = path.variable.variable_id
        entry = self._enter(path.variable)
        path.variable = entry.variable  # one object for all its paths
        hops = self._hops.setdefault(number, {})
        old = hops.get(path.path)
        try:
            if hop.target != NOWHERE:
                status.setup_path(number, hop.target, path.path, path.intervals_ns, path.priorities, path.modes)
            elif old is not None and old.target != NOWHERE:
                status.terminate_path(number, path.path)
        finally:
            if not hops:
                del self._hops[number]
        self._hops[number] = hops
        hops[path.path] = hop
        self._variables.hold(entry, PATHS)
        self._variables.feed(entry, _sources(hops))

    def _take(self, number: int, path: int, now_ns: int) -> None:
        hops = self._hops.get(number, {})
        hop = hops.pop(path, None)
        if hop is None:
            return
        if hop.target != NOWHERE:
            with suppress(UnknownVariableError):
                self._engine.status.terminate_path(number, path)
        entry = self._variables.directory.numbered(number)
        if entry is not None:
            self._variables.feed(entry, _sources(hops))
        if not hops:
            del self._hops[number]
            if entry is not None:
                self._variables.release(entry, PATHS, now_ns)

    def _restore(self, number: int, path: int, old: Hop | None, variable: Variable | None) -> None:
        if old is None:
            self._take(number, path, 0)
        if variable is not None:
            self._variables.enter(variable)
            if old is not None:
                self._put(old)
            return
        entry = self._variables.directory.numbered(number)
        if entry is not None and number not in self._hops:
            self._variables.release(entry, PATHS, 0)


def _sources(hops: dict[int, Hop]) -> tuple[int, ...]:
    return tuple(sorted({hop.source for hop in hops.values() if hop.source != NOWHERE}))


def _named(variable: Variable) -> str:
    return f"{variable.publisher}/{variable.variable} ({variable.variable_id:#x})"
