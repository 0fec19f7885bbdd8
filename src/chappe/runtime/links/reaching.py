"""The ways to a peer: what its url says, or what it tells over HTTP; and what else it has once it is connected."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

from chappe.core.sections import Peer
from chappe.errors import LinkError
from chappe.links.address import parse
from chappe.links.administrative import exchange, is_site, parse_site
from chappe.links.dial import dial
from chappe.links.kinds import encrypts
from chappe.links.link import Raw
from chappe.links.negotiation import Abilities, Capabilities, Choice, choose
from chappe.links.options import LinkOptions
from chappe.links.proxy import proxy_for


class Reaching:
    """Dials peers of one node. `client_tls()` gives its certificates, where `certificates` says that it has some."""

    def __init__(self, client_tls: Callable[[], ssl.SSLContext], certificates: Callable[[], bool]) -> None:
        self._client_tls = client_tls
        self._certificates = certificates

    async def choices(self, config: Peer) -> list[Choice]:
        """Where to dial, the best first; LinkError says why there is nothing.

        What the peer itself said in an earlier handshake is left out: a url may lead through a relay on purpose.
        """
        options = _options(config)
        written = [parse(url) for url in config.urls if not is_site(url)]
        found = choose(self._abilities(config, True), Capabilities(config.name, tuple(written)), "control")
        problems: list[str] = []
        for site in (parse_site(url) for url in config.urls if is_site(url)):
            tls = self._client_tls() if site.secure else None
            proxy = proxy_for(config.proxy, site.address, os.environ)
            theirs = await exchange(site, tls=tls, proxy=proxy, options=options)
            offered = choose(self._abilities(config, site.address.is_loopback), theirs, "control")
            if not offered:
                problems.append(
                    f"{site} offers {', '.join(theirs.uris()) or 'nothing'}, of which nothing can be used here"
                )
            found += offered
        if not found:
            raise LinkError("; ".join(problems) or f"no link to {config.name} can be used here")
        return list({choice.address: choice for choice in reversed(found)}.values())[::-1]

    async def dial(self, config: Peer, choice: Choice) -> Raw:
        """A connection by that link."""
        address = choice.address
        tls = self._client_tls() if encrypts(address) else None
        proxy = proxy_for(config.proxy, address, os.environ)
        return await dial(address, tls=tls, options=_options(config), proxy=proxy)

    def datagrams(self, config: Peer, theirs: Capabilities | None, near: bool) -> bool:
        """Whether STATUS should go by datagrams: as the configuration says, or as both ends do best (`auto`)."""
        if config.data != "auto":
            return config.data == "udp"
        best = choose(self._abilities(config, near), theirs, "status")[:1] if theirs is not None else []
        return bool(best) and best[0].kind == "udp"

    def best(self, config: Peer, theirs: Capabilities | None, data: str, near: bool) -> Choice:
        """The best link for a kind of data; LinkError names what the peer has."""
        found = choose(self._abilities(config, near), theirs or Capabilities(config.name), data)
        if not found:
            listed = ", ".join(theirs.uris()) if theirs is not None else ""
            raise LinkError(f"{config.name} has no link for {data} that can be used here; it has: {listed or 'none'}")
        return found[0]

    def alternative(self, config: Peer, theirs: Capabilities, kind: str, near: bool) -> Choice:
        """The peer's address of that kind; LinkError names what it has."""
        found = [choice for choice in choose(self._abilities(config, near), theirs, "control") if choice.kind == kind]
        if not found:
            raise LinkError(f"{config.name} has no {kind} link for us; it has: {', '.join(theirs.uris()) or 'none'}")
        return found[0]

    def _abilities(self, config: Peer, same_machine: bool) -> Abilities:
        return Abilities(
            certificates=self._certificates(), proxied=bool(config.proxy), same_machine=same_machine,
            preferred=config.prefer,
        )  # fmt: skip


def _options(config: Peer) -> LinkOptions:
    return LinkOptions(send_buffer=config.send_buffer, receive_buffer=config.receive_buffer)
