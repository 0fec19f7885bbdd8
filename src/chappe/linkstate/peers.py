"""Neighbours: where they are, which links lead to them, and who cannot be one."""

from __future__ import annotations

from collections.abc import Container

from chappe.linkstate.checks import ID_BYTES
from chappe.linkstate.units import Address


class Peer:
    """A neighbour: where it is, the level of the links to it, and which there are."""

    __slots__ = ("address", "level", "links")

    def __init__(self, address: Address, level: int) -> None:
        self.address = address
        self.level = level
        self.links: set[bytes] = set()


def unfit(me: Address, peer: str, address: Address, link: bytes, links: Container[bytes]) -> str:
    """Why a link cannot be one of the mesh; empty if it can. `links` are those that are up."""
    if address.depth != me.depth:
        return (
            f"{address} lies {address.depth} units deep and this node, {me}, {me.depth}; "
            "give all nodes of a mesh units of the same depth"
        )
    if address.node != peer:
        return f"{peer!r} calls itself {address.node!r}"
    if peer == me.node:
        return f"{address} has the name of this node, {me}; names are unique in a mesh"
    if len(link) != ID_BYTES:
        return f"link id of {len(link)} bytes; it has {ID_BYTES}"
    return f"link {link.hex()} is up already" if link in links else ""
