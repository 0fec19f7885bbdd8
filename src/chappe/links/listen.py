"""Listening on an address of any kind."""

from __future__ import annotations

import ssl

from chappe.links.address import Address
from chappe.links.factory import Listening
from chappe.links.kinds import factory_of
from chappe.links.link import Accepted
from chappe.links.listener import Listener
from chappe.links.options import LinkOptions

__all__ = ["Accepted", "Listener", "listen"]


async def listen(
    address: Address, accepted: Accepted, *, tls: ssl.SSLContext | None = None, options: LinkOptions | None = None
) -> Listener:
    """Listen on the address of a stream; `accepted(raw)` runs as a task for each connection.

    It does the handshake and attaches or closes the connection; an error that leaves it closes the connection.
    """
    return await factory_of(address).listen(address, accepted, Listening(options or LinkOptions(), tls))
