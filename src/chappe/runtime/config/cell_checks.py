"""What `[cells]` must satisfy beyond the types of its keys: others can connect, or are told that they cannot."""

from __future__ import annotations

from collections.abc import Iterator

from chappe.core.sections import Config
from chappe.errors import ConfigError
from chappe.links.address import parse
from chappe.links.kinds import factory_of, stream_schemes

EVERYWHERE = ("0.0.0.0", "::", "")


def cell_problems(config: Config, dev: bool) -> Iterator[str]:
    """One line `key: reason` for each thing that is wrong."""
    cells = config.cells
    if cells is None:
        return
    if config.manages is not None:
        yield "cells: a broker forwards nothing; remove [cells] or [manages]"
    for at, url in enumerate(cells.urls):
        yield from (f"cells.urls[{at}]: {problem}" for problem in _url(config, url, dev))
    if not cells.reachable:
        if cells.urls:
            yield "cells.urls: nobody can connect to this node by them (cells.reachable); remove one of the two"
        return
    listening = [entry.url for entry in config.listen if "node" in entry.roles]
    if not cells.urls and not listening:
        yield "cells.reachable: no [[listen]] takes nodes; add one, or say `reachable = false`"
    elif not cells.urls and all(_everywhere(url) for url in listening):
        yield "cells.urls: say by which address others connect; this node listens on all addresses of its machine"


def _url(config: Config, url: str, dev: bool) -> Iterator[str]:
    try:
        address = parse(url, stream_schemes())
    except ConfigError as error:
        yield str(error)
        return
    if _everywhere(url):
        yield f"{url} is no address that others can connect to"
    elif dev and not address.is_loopback:
        yield f"--dev has no authentication and serves loopback only; {address.host} is not loopback"
    elif not factory_of(address).secure and not address.is_loopback:
        yield f"plain {address.scheme} is for loopback only; use tls:// for {address.host}"
    if factory_of(address).encrypts and config.tls is None:
        yield f"{address.scheme}:// needs a [tls] section with ca, cert and key"


def _everywhere(url: str) -> bool:
    try:
        return parse(url).host in EVERYWHERE
    except ConfigError:
        return False
