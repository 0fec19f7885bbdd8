"""Path setup: the paths of a subscription while routers confirm them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from chappe.status.leaf.routers import Key, Routers
from chappe.status.leaf.state import PathSegment
from chappe.wire.base import Grant, Variable
from chappe.wire.management import Path

ANSWER_NS = 5_000_000_000  # a connected router that does not answer for so long has failed


def hops(
    variable: Variable, grants: Sequence[Grant | None], segments: Sequence[PathSegment]
) -> Iterator[tuple[str, Path, bool]]:
    """(router, its path, whether it is the publisher's edge) from the subscriber's side to the publisher's.

    Where publisher and subscriber have one edge no router needs a path.
    """
    for segment in segments:
        intervals = _by_mode([grant.interval_ns if grant is not None else 0 for grant in grants], segment.modes)
        priorities = _by_mode([grant.priority if grant is not None else 0 for grant in grants], segment.modes)
        chain = (segment.before, *segment.routers, segment.after)
        for at in range(len(segment.routers), 0, -1):
            source, target = chain[at - 1], chain[at + 1]
            if source or target:
                path = Path(variable, segment.path, source, target, intervals, priorities, segment.modes)
                yield chain[at], path, not source


def _by_mode(values: list[int], modes: int) -> tuple[int, ...]:
    """One for all modes where they do not differ."""
    found = {value for mode, value in enumerate(values) if modes >> mode & 1}
    return (found.pop(),) if len(found) == 1 else tuple(values)


class PathSetup:
    """One subscription's paths being set up: everything at once, the publisher's edge after all others (GS-088).

    Exactly one of `done` and `failed` is called, once, unless it is `stop`ped before.
    """

    def __init__(
        self,
        routers: Routers,
        paths: Sequence[tuple[str, Path, bool]],
        done: Callable[[], None],
        failed: Callable[[str, str], None],
        deadline_ns: int,
        patient: bool = False,
    ) -> None:
        self._routers = routers
        self._first = [(router, path) for router, path, edge in paths if not edge]
        self._last = [(router, path) for router, path, edge in paths if edge]
        self._waiting: set[tuple[str, Key]] = set()
        self._done, self._failed = done, failed
        self.deadline_ns = deadline_ns
        self._patient = patient  # after a restart: routers that are away may come back in time
        self.over = False

    def start(self) -> None:
        for stage in (self._first, self._last):
            if stage:
                self._begin(stage)
                return
        self._end()

    def _begin(self, stage: list[tuple[str, Path]]) -> None:
        self._waiting = {(router, _key(path)) for router, path in stage}
        if stage is self._first:
            self._first = []
        else:
            self._last = []
        for router, path in stage:
            self._routers.set(router, _key(path), path, self)

    def confirmed(self, router: str, key: Key) -> None:
        self._waiting.discard((router, key))
        if self.over or self._waiting:
            return
        if self._last:
            self._begin(self._last)
        else:
            self._end()

    def refused(self, router: str, key: Key, reason: str) -> None:
        self._fail(f"router {router} refuses the path: {reason}", "limit")

    def lost(self, router: str) -> None:
        if not self._patient:
            self._fail(f"router {router} was lost while the path was set up", "unavailable")

    def expire(self) -> None:
        names = ", ".join(sorted({router for router, _ in self._waiting}))
        self._fail(f"no answer from {names} while the path was set up", "unavailable")

    def stop(self) -> None:
        """Nobody is interested any more; what was sent stays to be removed by its owner."""
        self.over = True

    def _fail(self, reason: str, code: str) -> None:
        if not self.over:
            self.over = True
            self._failed(reason, code)

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._done()


def _key(path: Path) -> Key:
    return path.variable.variable_id, path.path
