"""Rows of listings: the names that a cell knows, its links, and the paths of its parcels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chappe.cells.machine import Cells
from chappe.engine.routes import ParcelRow

Row = dict[str, Any]


def known_names(cells: Cells, prefix: str) -> Iterator[Row]:
    """Every name with that prefix: where it is, over how many links, by which neighbour first, and how much of it."""
    me = cells.address
    for name in sorted(name for name in cells.names if name.startswith(prefix)):
        yield {"name": name, "cell": me, "hops": 0, "next": "", "bytes_per_s": None}
    for name in list(cells.trie.with_prefix(prefix)):
        known = cells.trie.find(name)
        if known is None:
            continue
        cell, bandwidths = cells.directory.get(known.cell), cells.router.bandwidths(known)
        best = max(bandwidths, key=lambda id: (bandwidths[id], id), default=None)
        yield {
            "name": name,
            "cell": address_of(cells, known.cell),
            "hops": cells.neighbourhood.hops.get(known.cell, cell.hops if cell is not None else 0),
            "next": "" if best is None else address_of(cells, best),
            "bytes_per_s": sum(min(value, cells.neighbourhood.capacity(id)) for id, value in bandwidths.items()),
        }


def links(cells: Cells) -> Iterator[Row]:
    """Every link to a cell, and every cell that is dialled."""
    linked = {each.id for each in cells.neighbours.values()}
    for each in list(cells.neighbours.values()):
        bandwidth = cells.neighbourhood.neighbours.get(each.id)
        yield {
            "name": each.name,
            "cell": address_of(cells, each.id),
            "status": "up" if each.joined else "joining",
            "wanted": cells.dialling.wanted.get(each.id, ""),
            "wanted_there": each.wants,
            "dialled": each.id in cells.dialling.dialled,
            "mesh": each.joins,
            "bytes_per_s": bandwidth,
            "names": len(cells.trie.names_of(each.id)),
            "up_s": (cells.engine.mono_ns - each.since_ns) / 1e9,
        }
    for id, dial in list(cells.dialling.dialled.items()):
        if id not in linked:
            yield {
                "name": dial.name,
                "cell": address_of(cells, id),
                "status": "dialled",
                "wanted": cells.dialling.wanted.get(id, ""),
            }


def parcel_routes(cells: Cells, destination: str) -> Iterator[Row]:
    """Every path that parcels to a destination take, or to all of them, as the engine uses it."""
    for row in cells.engine.parcel_rows():
        if not destination or row.destination == destination.encode():
            yield _path(cells, row)


def _path(cells: Cells, row: ParcelRow) -> Row:
    fields = {key: value for key, value in row._asdict().items() if key not in ("destination", "hops")}
    return {
        "destination": row.destination.decode(errors="replace"),
        "hops": [address_of(cells, hop) for hop in row.hops],
        **fields,
    }


def address_of(cells: Cells, id: bytes) -> str:
    """Where a cell is; its id in hexadecimal digits if nothing is known of it."""
    if id == cells.me:
        return cells.address
    cell = cells.directory.get(id)
    return id.hex() if cell is None else cell.record.address


def gauges(cells: Cells) -> dict[str, float]:
    """What /metrics shows of a cell, as `chappe_NAME`."""
    counts, groups = cells.counts, cells.groups.counts
    return {
        "cell_names": len(cells.names),
        "cell_names_known": len(cells.trie),
        "cells_known": len(cells.directory),
        "cell_links": sum(each.joined for each in cells.neighbours.values()),
        "cell_links_dialled": len(cells.dialling.dialled),
        "cell_neighbourhood": len(cells.neighbourhood.hops),
        "cell_records_without_room": cells.directory.full,
        "cell_messages": counts.messages_in,
        "cell_messages_refused": counts.refused,
        "cell_messages_excess": counts.excess,
        "cell_route_questions": counts.route_questions,
        "cell_routes_missing": counts.unreachable,
        "cell_multicast_received": groups.received,
        "cell_multicast_delivered": groups.delivered,
        "cell_multicast_forwarded": groups.forwarded,
        "cell_multicast_repeated": groups.repeated,
        "cell_multicast_dropped": groups.dropped,
    }
