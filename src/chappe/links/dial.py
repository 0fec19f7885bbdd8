"""Connecting to an address of any kind."""

from __future__ import annotations

import asyncio
import ssl

from chappe.errors import TimeoutExpired
from chappe.links.address import Address
from chappe.links.factory import Dialling
from chappe.links.kinds import factory_of
from chappe.links.link import Raw
from chappe.links.options import LinkOptions
from chappe.links.proxy import Proxy


async def dial(
    address: Address,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    options: LinkOptions | None = None,
    proxy: Proxy | None = None,
) -> Raw:
    """A connection to the address of a stream; LinkError, RefusedError or TimeoutExpired names address and reason.

    An encrypted address needs a context; `server_name` is the name the certificate must carry if it is not the host.
    """
    options = options or LinkOptions()
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            return await factory_of(address).connect(address, Dialling(options, tls, server_name, proxy))
    except TimeoutError:
        raise TimeoutExpired(f"{address} did not answer within {options.connect_timeout_s:g} s") from None
