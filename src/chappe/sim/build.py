"""Puts a simulated node together: what it is made of in each of its lives, and the sessions of its connections."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chappe.core.build import Cellhood, MakeRole, Membership, build_node
from chappe.core.commands import Configure, Functions
from chappe.core.node import NodeCore
from chappe.core.sections import Config, Mesh, NodeSection
from chappe.core.session import Session
from chappe.events.member_settings import MemberSettings
from chappe.events.reporting import Reporter
from chappe.linkstate.units import Address
from chappe.machine import Effect
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.sim.codec import Codec


@dataclass(frozen=True, slots=True)
class Design:
    """What a node is made of, in each of its lives. Without `settings` it is in no mesh."""

    config: Config
    settings: MemberSettings | None = None
    role: MakeRole | None = None
    functions: Functions | None = None
    book: RuleBook = field(default_factory=RuleBook.open)
    reporter: Reporter | None = None  # gets the readings of the member

    def build(
        self, process: bytes, rng: random.Random, codec: Codec, carry_out: Callable[[list[Effect]], None],
        configure: Configure, bandwidth: Callable[[int], float],
    ) -> NodeCore:  # fmt: skip
        """The machines of one life, whose number is `process`; `bandwidth(port)`: of its line, forth."""
        membership = None
        if self.settings is not None:
            membership = Membership(self.settings, rng, reporter=self.reporter, decode=codec.advert)
        cellhood = None
        if self.config.cells is not None:
            name, urls = self.config.node.name, self.config.cells.urls
            cellhood = Cellhood(rng, lambda: urls or (f"sim://{name}",), None if membership is not None else bandwidth)
        return build_node(
            self.config, process=process, book=self.book, carry_out=carry_out, configure=configure,
            functions=self.functions, role=self.role, membership=membership,
            cellhood=cellhood, seed=int.from_bytes(process[:8], "big"),
        )  # fmt: skip


def plain_config(address: Address, meshed: bool) -> Config:
    """The configuration of a node of which nothing but its address is said."""
    unit = "/".join(address.unit)
    return Config(node=NodeSection(name=address.node), mesh=Mesh(unit=unit) if meshed else None)


def number_of(text: str) -> bytes:
    """The number of a process or client, the same in every run."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def node_session(port: int, peer: str, manager: bool) -> Session:
    """The session of a connection to another node."""
    return Session(port, peer, "node", dev_identity(peer, "node"), manager=manager, security=2)


def client_session(core: NodeCore, port: int, name: str, issuer: bytes, internal: bool) -> Session:
    """The session of a client; `internal`: of the worker of that node."""
    identity = dev_identity(name, "client")
    usage = core.sessions.usage(identity.name)
    return Session(port, name, "client", identity, issuer, usage=usage, security=2, internal=internal)
