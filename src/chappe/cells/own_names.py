"""The names that clients of this node have, added and removed while it runs (BF-01, BF-04)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chappe.cells.names import check_name
from chappe.cells.settings import CellSettings
from chappe.engine._engine import Engine
from chappe.errors import RefusedError
from chappe.wire.cells import MAX_NAMES


@dataclass(frozen=True, slots=True)
class _Owned:
    port: int
    owner: str
    stamp: int  # ms since 1970


class OwnNames:
    """By name; iterating gives the names. `changed` is set where others must hear of it."""

    def __init__(self, engine: Engine, settings: CellSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._names: dict[str, _Owned] = {}
        self._counts: Counter[str] = Counter()  # by owner
        self.changed = False

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def stamped(self) -> tuple[tuple[str, int], ...]:
        """As a record says them."""
        return tuple((name, owned.stamp) for name, owned in self._names.items())

    def of(self, port: int) -> list[str]:
        """Those of one client."""
        return [name for name, owned in self._names.items() if owned.port == port]

    def ports(self, prefix: str, but: str) -> set[int]:
        """The clients that have a name with that prefix, other than this one."""
        return {owned.port for name, owned in self._names.items() if name.startswith(prefix) and name != but}

    def add(self, port: int, names: Sequence[str], owner: str) -> None:
        """All of them, or none and RefusedError; those that the client has already are left as they are."""
        new = [name for name in dict.fromkeys(names) if not self._has(port, name)]
        for name in new:
            try:
                check_name(name)
            except ValueError as error:
                raise RefusedError(str(error), "invalid") from None
            if name in self._names:
                raise RefusedError(f"the name {name!r} belongs to another client of this node", "exists")
        most = self._settings.names_per_identity
        if self._counts[owner] + len(new) > most:
            reason = f"{owner} has {self._counts[owner]} names; at most {most} are allowed (cells.names_per_identity)"
            raise RefusedError(reason, "limit")
        if len(self._names) + len(new) > MAX_NAMES:
            raise RefusedError(f"the clients of this node have {len(self._names)} names; at most {MAX_NAMES}", "limit")
        done: list[str] = []
        try:
            for name in new:
                self._engine.own_name(name.encode(), port)
                done.append(name)
        except RefusedError:
            for name in done:
                self._engine.disown_name(name.encode(), port)
            raise
        stamp = self._engine.wall_ns // 1_000_000
        for name in new:
            self._names[name] = _Owned(port, owner, stamp)
        self._counts[owner] += len(new)
        self.changed |= bool(new)

    def remove(self, port: int, names: Sequence[str]) -> None:
        """RefusedError for one that the client does not have, and nothing is removed."""
        for name in names:
            if not self._has(port, name):
                raise RefusedError(f"{name[:80]!r} is no name of this client", "unknown")
        for name in dict.fromkeys(names):
            self._engine.disown_name(name.encode(), port)
            self._drop(name)

    def gone(self, port: int) -> None:
        """A client is gone with all its names; the engine knows that already."""
        for name in self.of(port):
            self._drop(name)

    def _has(self, port: int, name: str) -> bool:
        owned = self._names.get(name)
        return owned is not None and owned.port == port

    def _drop(self, name: str) -> None:
        owner = self._names.pop(name).owner
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        self.changed = True
