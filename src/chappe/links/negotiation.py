"""Which link is best for a kind of data, of those that both ends have (MR-043, MR-044, MR-120); no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from chappe.errors import ConfigError, ProtocolError
from chappe.links.address import Address, parse
from chappe.links.factory import DATA, Factory
from chappe.links.kinds import factories, factory_of

LINKS_MAX = 64  # that one node may offer
URI_MAX = 512


class Page(msgspec.Struct, frozen=True):
    """The JSON of /capabilities."""

    node: str
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a node can be reached by: protocols with their hosts, ports, paths and groups."""

    node: str
    links: tuple[Address, ...] = ()
    unknown: tuple[str, ...] = ()  # of transports that do not exist here

    def uris(self) -> tuple[str, ...]:
        """As they are exchanged."""
        return tuple(str(address) for address in self.links)

    def page(self) -> bytes:
        """As /capabilities serves them."""
        return msgspec.json.encode(Page(self.node, self.uris()))


def read(node: str, uris: Sequence[str], host: str = "") -> Capabilities:
    """What the other end offers; `host` is where it was met, for addresses that any host name leads to.

    ProtocolError if there are too many; addresses that cannot be read are kept apart.
    """
    if len(uris) > LINKS_MAX or any(len(uri) > URI_MAX for uri in uris):
        raise ProtocolError(f"{node[:64]!r} offers {len(uris)} links; {LINKS_MAX} of {URI_MAX} characters are allowed")
    links: dict[Address, None] = {}
    unknown: list[str] = []
    for uri in uris:
        try:
            address = parse(uri)
            factory_of(address)
        except ConfigError:
            unknown.append(uri)
            continue
        links[address.with_host(host) if address.is_any and host else address] = None
    return Capabilities(node, tuple(links), tuple(unknown))


def read_page(body: bytes, host: str) -> Capabilities:
    """What /capabilities said; ProtocolError if that is not readable."""
    try:
        page = msgspec.json.decode(body, type=Page)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the capabilities are not readable: {error}") from None
    return read(page.node, page.links, host)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this end can use."""

    certificates: bool = False  # there is a TLS context
    proxied: bool = False  # only connections through a proxy get out
    same_machine: bool = False
    kinds: frozenset[str] = field(default_factory=lambda: frozenset(factories()))
    preferred: tuple[str, ...] = ()  # kinds that the application wants first, in that order


@dataclass(frozen=True, slots=True)
class Choice:
    """A link to open, and why it and no other."""

    address: Address
    kind: str
    reason: str


def choose(mine: Abilities, theirs: Capabilities, data: str) -> list[Choice]:
    """The links that can carry that kind of data, the best first; empty if both ends have none in common."""
    if data not in DATA:
        raise ConfigError(f"{data!r} is no kind of data; one of {', '.join(DATA)}")
    usable: list[tuple[int, int, int, Address, Factory]] = []
    left_out: list[str] = []
    for place, address in enumerate(theirs.links):
        factory = factory_of(address)
        problem = _problem(mine, factory, address, data)
        if problem:
            left_out.append(f"{factory.kind} {problem}")
            continue
        wanted = mine.preferred.index(factory.kind) if factory.kind in mine.preferred else len(mine.preferred)
        usable.append((wanted, factory.ranks[data], place, address, factory))
    usable.sort(key=lambda item: item[:3])
    order = _words(factory.kind for _, _, _, _, factory in usable)
    why = f"of {order} for {data}" + (f"; left out: {_words(left_out)}" if left_out else "")
    return [
        Choice(address, factory.kind, f"{'preferred' if wanted < len(mine.preferred) else 'ranked'} {at} {why}")
        for at, (wanted, _, _, address, factory) in enumerate(usable, start=1)
    ]


def _problem(mine: Abilities, factory: Factory, address: Address, data: str) -> str:
    if factory.kind not in mine.kinds:
        return "is switched off here"
    if data not in factory.ranks:
        return f"carries no {data}"
    if factory.encrypts and not mine.certificates:
        return "needs certificates"
    if address.scheme == "unix" and not mine.same_machine:
        return "is on another machine"
    if not factory.secure and not address.is_loopback:
        return "is plain and leaves the machine"
    if address.is_loopback and not mine.same_machine:
        return "is on another machine"
    if mine.proxied and (not factory.stream or address.scheme == "unix"):
        return "does not pass the proxy"
    return ""


def _words(items: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(items)) or "none"
