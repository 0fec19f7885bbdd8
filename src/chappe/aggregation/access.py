"""Who sees which records: rows by user group, node and link, columns by metric (MR-088, MR-105)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chappe.errors import ConfigError
from chappe.measure.messages import Metric
from chappe.measure.record import METRICS, Record

OPEN = ""  # user group of records that everybody may see


class View(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[view]]` table: what a group of users sees.

    user_groups: of records, beside the open ones; `*`: all. nodes, links: only these; none: all. metrics: the others
    are hidden. exchange: whether snapshots for this group are sent to other realms.
    """

    group: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^/+#\s]+$")]
    user_groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = METRICS  # type: ignore[assignment]
    exchange: bool = False

    def visible_part(self, record: Record) -> Record | None:
        """The record as the group sees it, without what is hidden; None if it does not see it at all."""
        if not self._sees(record):
            return None
        if self.metrics == METRICS:
            return record
        hidden: dict[str, Any] = {name: None for name in METRICS if name not in self.metrics}
        return msgspec.structs.replace(record, **hidden) if hidden else record

    def _sees(self, record: Record) -> bool:
        if record.user_group != OPEN and "*" not in self.user_groups and record.user_group not in self.user_groups:
            return False
        if self.nodes and record.node not in self.nodes:
            return False
        return not self.links or record.link in self.links

    def where(self) -> tuple[str, dict[str, Any]]:
        """The same rows as a condition of SQL, with its values."""
        parts: list[str] = []
        values: dict[str, Any] = {}
        groups = () if "*" in self.user_groups else (OPEN, *self.user_groups)
        for column, allowed in (("user_group", groups), ("node", self.nodes), ("link", self.links)):
            if allowed:
                names = [f"view_{column}_{number}" for number in range(len(allowed))]
                parts.append(f"{column} IN ({', '.join(':' + name for name in names)})")
                values.update(zip(names, allowed, strict=True))
        return " AND ".join(parts) or "1 = 1", values


EVERYTHING = View(group="administrator", user_groups=("*",))
STRANGER = View(group="everybody")


class Access:
    """The views of a realm; a group without one sees open records."""

    def __init__(self, views: Sequence[View] = ()) -> None:
        groups = [view.group for view in views]
        double = {group for group in groups if groups.count(group) > 1}
        if double:
            raise ConfigError(f"view {min(double)!r}: there are two views of that group; write one")
        self._views = {view.group: view for view in views}

    def view(self, group: str) -> View:
        return self._views.get(group, STRANGER)

    def exchanged(self) -> list[View]:
        """Views that other realms get."""
        return [view for view in self._views.values() if view.exchange]
