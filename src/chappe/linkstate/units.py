"""Where a node lies: names of units from the outermost to its cluster, and what others see of it (MR-010, MR-017)."""

from __future__ import annotations

from typing import NamedTuple

from chappe.errors import ConfigError

Unit = tuple[str, ...]

MAX_DEPTH = 16
MAX_NAME = 255  # of a node, or one name of a unit


class VertexId(NamedTuple):
    """What a node sees: a node of its own cluster (level 0), or a unit of the k-th ring around it (level k).

    The name is a node's name at level 0 and the unit's path above. Of a unit that fell apart each part is a vertex of
    its own, `path@originator`.
    """

    level: int
    name: str

    @property
    def path(self) -> str:
        """Its name without the originator of a part."""
        return self.name.partition("@")[0] if self.level else self.name

    def __str__(self) -> str:
        return self.name


class Address(NamedTuple):
    """The unit of a node, outermost name first, and its name."""

    unit: Unit
    node: str

    @classmethod
    def parse(cls, unit: str, node: str) -> Address:
        """`parse("east/plant-3/hall-b", "n17")`; ConfigError says which name cannot be."""
        return cls(parse_unit(unit), checked_name(node, "node"))

    @classmethod
    def read(cls, text: str) -> Address:
        """The node that a well-formed address of the wire names; what stands behind its `@` is left out."""
        *unit, node = text.partition("@")[0].split("/")
        return cls(tuple(unit), node)

    @property
    def depth(self) -> int:
        """How many rings of units are around the nodes of its cluster."""
        return len(self.unit)

    def __str__(self) -> str:
        return "/".join((*self.unit, self.node))

    def path(self, level: int) -> str:
        """Path of the own unit of level 1 (the cluster) to depth; at level 0 the node's own name."""
        return "/".join(self.unit[: len(self.unit) - level + 1]) if level else self.node

    def scope(self, level: int) -> str:
        """Path of the unit in which a level is advertised: the cluster for nodes, "" (the mesh) at the top."""
        return "/".join(self.unit[: max(0, len(self.unit) - level)])


def parse_unit(text: str) -> Unit:
    """The names in a unit's path; ConfigError says which one cannot be."""
    if not text:
        return ()
    names = tuple(text.split("/"))
    if len(names) > MAX_DEPTH:
        raise ConfigError(f"unit {text!r} has {len(names)} names; at most {MAX_DEPTH} are allowed")
    for name in names:
        checked_name(name, f"unit in {text!r}")
    return names


def checked_name(name: str, what: str) -> str:
    """The name if it can stand in paths, vertices and topics; ConfigError otherwise."""
    if not 1 <= len(name) <= MAX_NAME or any(mark in name for mark in "/@+#") or not name.isprintable():
        raise ConfigError(
            f"{name[:64]!r} cannot be the name of a {what}: use 1 to {MAX_NAME} printable characters without / @ + #"
        )
    return name


def level_between(a: Address, b: Address) -> int:
    """The level at which two nodes are different vertices: 0 in the same cluster; both have the same depth."""
    same = 0
    for one, other in zip(a.unit, b.unit, strict=True):
        if one != other:
            break
        same += 1
    return len(a.unit) - same


def visible(me: Address, other: Address) -> VertexId:
    """The smallest vertex in the map of `me` that holds the other node."""
    level = level_between(me, other)
    return VertexId(level, other.path(level))


def static_cost(i: int, j: int) -> int:
    """Cost of a link between vertices of level i and j as long as nothing is measured (MR-017)."""
    return i + j
