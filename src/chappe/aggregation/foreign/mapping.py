"""Which link a foreign pair of hosts, or a foreign metric, is about: a table of the administrator."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chappe.errors import ConfigError
from chappe.measure.record import link_of

Kind = Literal["pscheduler", "prometheus"]


class ForeignLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[foreign.link]]` table: what others call a link of ours.

    node: our end. uri or link (a UUID): the link; without a UUID it is made from the URI. source, target: the hosts of
    a pScheduler test, or values of the labels of a Prometheus metric. weight: how much it counts in the cost; 0: it is
    kept, and steers nothing.
    """

    node: str
    uri: str = ""
    link: str = ""
    peer: str = ""
    transport: str = ""
    source: str = ""
    target: str = ""
    labels: dict[str, str] = {}
    weight: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    user_group: str = ""

    def uuid(self) -> str:
        """Of the link; ConfigError if the table names none."""
        if self.link:
            try:
                return str(uuid.UUID(self.link))
            except ValueError:
                raise ConfigError(f"foreign.link: {self.link!r} is no UUID") from None
        if not self.uri:
            raise ConfigError(f"foreign.link of {self.node}: give uri or link")
        return link_of(self.uri)


class ForeignMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[foreign.metric]]` table: a Prometheus metric, the field it gives, and what one of its units is worth."""

    name: str
    field: Literal["latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth"]
    factor: float = 1.0


class Foreign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[foreign]]` table: a system, where its results are, and what they are about.

    place: a file, or an http(s) url; read every `every_s` seconds.
    """

    kind: Kind
    place: str
    every_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    link: tuple[ForeignLink, ...] = ()
    metric: tuple[ForeignMetric, ...] = ()


def between(links: Sequence[ForeignLink], source: str, target: str) -> ForeignLink | None:
    """The link that a pair of hosts stands for."""
    return next((each for each in links if each.source == source and each.target == target), None)
