"""What a topic resolves to: ports that get every event, and behind them those whose filters are asked (record 0051)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Subscription(NamedTuple):
    port: int
    pattern: str
    group: str = ""
    filter: int = 0  # number of a content filter, 0: every event


@dataclass(frozen=True)
class ResolvedRoute:
    """The route of one topic; equal routes are one object in the engine, so that runs of frames compare pointers."""

    plain: tuple[int, ...]  # ports that get every event, ascending
    filtered: tuple[tuple[int, int], ...]  # (port, filter) of other ports, ascending: those that some filter lets in
    groups: tuple[tuple[str, tuple[int, ...]], ...]  # queue groups by name, with the ports of their members

    @property
    def has_filtered(self) -> bool:
        """Tested once a run of frames: False, and no frame of the run is decided about by itself."""
        return bool(self.filtered)

    def receivers(self, matching: Collection[int]) -> tuple[int, ...]:
        """Ports that get an event which these filters let in, each once, plain ones first."""
        if not self.has_filtered:
            return self.plain
        return self.plain + tuple(sorted({port for port, number in self.filtered if number in matching}))


def resolve(subscriptions: Iterable[Subscription], matches: Callable[[str], bool]) -> ResolvedRoute:
    """The route of a topic out of the subscriptions whose pattern matches it.

    A filter of a queue group is part of the group's identity: groups hold no filtered members.
    """
    found = [each for each in subscriptions if matches(each.pattern)]
    plain = {each.port for each in found if not each.group and not each.filter}
    filtered = {(each.port, each.filter) for each in found if each.filter and each.port not in plain}
    groups: dict[str, set[int]] = {}
    for each in found:
        if each.group:
            groups.setdefault(each.group, set()).add(each.port)
    members = tuple((name, tuple(sorted(ports))) for name, ports in sorted(groups.items()))
    return ResolvedRoute(tuple(sorted(plain)), tuple(sorted(filtered)), members)
