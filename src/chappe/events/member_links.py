"""The links of a member: which port leads to whom, under which id, and what joining it takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from chappe.errors import ConfigError
from chappe.events.member_settings import Places
from chappe.linkstate.units import Address, parse_unit
from chappe.measure.bandwidth import Estimator
from chappe.wire.mesh import MeshJoin

Role = Literal["node", "client", "cell"]


@dataclass(slots=True)
class Link:
    """A link that is up: to another node, in the mesh once both have joined; or to a client or cell, measured alone."""

    port: int
    name: str
    role: Role
    kind: str
    lossy: bool
    proposed: bytes = b""  # the id that this end would give it
    id: bytes = b""  # the one it has, once joined (MR-077)
    address: Address | None = None
    trains: Estimator | None = None
    since_ns: int = 0
    suspect: bool = False
    capabilities: tuple[str, ...] = ()  # that both ends have
    traffic: int = -1  # events and values that went through, when last looked at

    @property
    def joined(self) -> bool:
        return bool(self.id)


class Links:
    """All links that are up, by port, id and name of the neighbour."""

    def __init__(self) -> None:
        self.by_port: dict[int, Link] = {}
        self.by_id: dict[bytes, Link] = {}
        self.ports: dict[str, int] = {}  # of neighbours that have joined

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self.by_port.values()))

    def __len__(self) -> int:
        return len(self.by_port)

    def add(self, link: Link) -> None:
        """A link is up."""
        self.by_port[link.port] = link

    def join(self, link: Link, id: bytes, address: Address) -> None:
        """Both ends know each other."""
        link.id, link.address = id, address
        self.by_id[id] = link
        self.ports[link.name] = link.port

    def remove(self, port: int) -> Link | None:
        """It is gone."""
        link = self.by_port.pop(port, None)
        if link is None:
            return None
        self.by_id.pop(link.id, None)
        if self.ports.get(link.name) == port:
            del self.ports[link.name]
        return link

    def named(self, name: str) -> Link | None:
        """The link to a node or client of that name."""
        return next((link for link in self.by_port.values() if link.name == name), None)


def proposal(rng: random.Random) -> bytes:
    """A new id for a link."""
    return rng.randbytes(16)


def misplaced(places: Places, name: str, unit: str) -> str:
    """Why a node may neither lie in that unit nor speak for it; empty if it may.

    A unit that is listed stands for all inside it; a node that may lie inside a unit may speak for it.
    """
    if not places:
        return ""
    for listed, names in places:
        inside = not listed or unit == listed or unit.startswith(f"{listed}/") or listed.startswith(f"{unit}/")
        if inside and any(fnmatchcase(name, pattern) for pattern in names):
            return ""
    return f"{name[:64]!r} has no place in unit {unit[:256]!r}: [mesh.units] of this node does not list it there"


def joining(me: Address, link: Link, message: MeshJoin, places: Places = ()) -> tuple[bytes, Address]:
    """The id of the link and where its other end lies; ConfigError says why that one is no neighbour."""
    if message.name != link.name:
        raise ConfigError(f"the node at the other end is {link.name!r} and joins as {message.name[:64]!r}")
    if message.name == me.node:
        raise ConfigError(f"{message.name!r} is the name of this node, too; give each node of the mesh its own")
    unit = parse_unit(message.unit)
    if len(unit) != me.depth:
        raise ConfigError(
            f"{message.name} lies in unit {message.unit!r} of depth {len(unit)}, this node in {'/'.join(me.unit)!r} of "
            f"depth {me.depth}: all nodes of a mesh have the same depth, correct [mesh] unit of one of them"
        )
    wrong = misplaced(places, message.name, "/".join(unit))
    if wrong:
        raise ConfigError(f"{wrong}; add it, or correct [mesh] unit of {message.name[:64]}")
    if len(message.link) != 16:
        raise ConfigError(f"the id of a link has 16 bytes, not {len(message.link)}")
    return (link.proposed if me.node < message.name else message.link), Address(unit, message.name)
