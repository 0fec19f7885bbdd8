"""The parts of a cell, put together."""

from __future__ import annotations

import random
from collections.abc import Callable

from chappe.cells.dialling import Dialling
from chappe.cells.directory import Directory
from chappe.cells.groups import GroupMessages
from chappe.cells.link_updates import LinkUpdates
from chappe.cells.names import cell_id
from chappe.cells.neighbour import Neighbour
from chappe.cells.neighbourhood import Neighbourhood
from chappe.cells.own_names import OwnNames
from chappe.cells.passive import PassiveBandwidth
from chappe.cells.peer_updates import PeerUpdates
from chappe.cells.reachability import Reachability
from chappe.cells.router import Router, RouterSettings
from chappe.cells.settings import CellSettings
from chappe.cells.spread import Spread
from chappe.cells.topology import Topology
from chappe.cells.trie import Trie, TrieSettings
from chappe.engine._engine import Engine

Bandwidth = Callable[[int], float]
"""What trains say that the link of a port carries towards its other end, in bytes a second; NaN: nothing."""


class CellParts:
    """Each is given the ones before it that it needs."""

    def __init__(
        self, address: str, engine: Engine, settings: CellSettings, rng: random.Random,
        urls: Callable[[], tuple[str, ...]], bandwidth: Bandwidth,
    ) -> None:  # fmt: skip
        """`address`: of the node; `urls()`: by which other cells can connect to it."""
        self.address = address
        self.engine = engine
        self.settings = settings
        self.urls = urls
        self.trained = bandwidth
        self.me = cell_id(address)
        most = int(settings.slack * settings.names)
        self.neighbours: dict[int, Neighbour] = {}  # by port
        self.names = OwnNames(engine, settings)
        self.directory = Directory(self.me, most)
        self.trie = Trie(TrieSettings(settings.names, settings.slack, period_ns=settings.update_ns))
        self.neighbourhood = Neighbourhood(self.me, settings.radius)
        self.router = Router(self.names, self.trie, self.neighbourhood, rng, RouterSettings(settings.paths))
        self.spread = Spread(self.directory)
        self.links = LinkUpdates(self.me, settings.radius, self.neighbourhood, engine.wall_ns // 1_000_000)
        self.peers = PeerUpdates(
            self.me, self.directory, self.trie, self.router, most + settings.names, settings.update_ns
        )
        topology = Topology(self.me, settings, self.directory, self.trie, rng)
        self.dialling = Dialling(
            settings, self.directory, topology, Reachability(settings), self.names, self.neighbours
        )  # fmt: skip
        self.passive = PassiveBandwidth(engine)
        self.groups = GroupMessages(
            self.me, engine, self.names, self.trie, self.neighbourhood, self.router, self.neighbours
        )  # fmt: skip
