"""The brokers that an operator's command talks to: by address, or by name from the file of the deployment."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from chappe.cli._failures import say
from chappe.cli._target import PANEL, Target
from chappe.errors import ConfigError, LinkError, RefusedError
from chappe.wire.constants import ALL_MODES

if TYPE_CHECKING:
    from chappe.cli._tables import Row
    from chappe.client.client import Client
    from chappe.client.connecting import Connecting
    from chappe.status.topology import Topology

ROWS = 1_000_000  # of one listing
ANSWER_S = 30.0  # a change of mode waits for every router of every cloud
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Operator(Target):
    """Where brokers are and who asks. With a deployment the addresses come from its file."""

    url: Annotated[
        str,
        typer.Option("--url", envvar="CHAPPE_URL", help="Address of a broker.", rich_help_panel=PANEL),
    ] = ""
    deployment: Annotated[
        Path | None,
        typer.Option(
            "--deployment",
            "-d",
            envvar="CHAPPE_DEPLOYMENT",
            help="Deployment file, instead of --url.",
            rich_help_panel=PANEL,
        ),
    ] = None
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="Name of the broker in --deployment.", rich_help_panel=PANEL)
    ] = ""

    def topology(self) -> Topology | None:
        """What the file of --deployment says; None without one."""
        if self.deployment is None:
            return None
        from chappe.cli._deployment import read

        found = read(self.deployment).topology
        if found is None:
            raise ConfigError(f"{self.deployment}: has [nodes] and no brokers; give --url of a broker")
        return found

    def one(self, otherwise: Callable[[Topology], str]) -> tuple[str, tuple[str, ...]]:
        """(name, urls) of the broker that was named, or of the one that `otherwise` chooses."""
        topology = self.topology()
        if topology is None:
            return self._by_url()
        name = self.broker or otherwise(topology)
        if name not in topology.brokers:
            known = ", ".join(topology.brokers)
            raise ConfigError(f"--broker {name}: {self.deployment} has no such broker (brokers: {known})")
        return name, topology.brokers[name].listen

    def all(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The broker that was named, or all of the deployment."""
        topology = self.topology()
        if topology is None or self.broker:
            yield self.one(root_of)
        else:
            yield from ((broker.name, broker.listen) for broker in topology.broker)

    def _by_url(self) -> tuple[str, tuple[str, ...]]:
        if self.broker:
            raise ConfigError(f"--broker {self.broker}: needs --deployment FILE, which says where that broker is")
        if not self.url:
            raise ConfigError("say which broker: --url URL, or --deployment FILE (or set CHAPPE_DEPLOYMENT)")
        return "", tuple(self.url.split(","))

    async def ask(self, urls: tuple[str, ...], job: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """What the job gets from the active process of a broker: the first that answers and does not stand by."""
        failure: Exception = LinkError("there is no address")
        for url in urls:
            try:
                async with self.at(url) as client:
                    return await job(client)
            except LinkError as error:
                failure = error
            except RefusedError as error:
                if error.code != "unavailable":
                    raise
                failure = error
        raise failure

    def at(self, url: str, name: str = "") -> Connecting:
        """A client of the node at that address."""
        import chappe

        own = name or f"operator-{os.getpid()}"
        return chappe.connect(url, name=own, token=self.secret(), tls=self.tls(), proxy=self.proxy, timeout_s=ANSWER_S)

    async def rows(self, urls: tuple[str, ...], what: str, variable: str = "", limit: int = ROWS) -> list[Row]:
        """The rows of a listing."""
        return await self.ask(urls, lambda client: client.list(what, limit, variable))

    async def gathered(self, what: str, limit: int = ROWS) -> list[Row]:
        """The rows of every broker that was asked, with its name where there are several.

        One that has no such rows is passed over if it is one of many: a leaf has no children, an inner broker no
        functions.
        """
        found: list[Row] = []
        several = self.deployment is not None and not self.broker
        for name, urls in self.all():
            try:
                rows = await self.rows(urls, what, limit=limit)
            except RefusedError as error:
                if several and error.code == "invalid":
                    continue
                raise
            found += [{"broker": name, **row} for row in rows] if several else rows
            if len(rows) == limit:
                say(f"{name or urls[0]}: {limit} rows are shown, there may be more")
        return found


def root_of(topology: Topology) -> str:
    """The broker that is asked if none is named: its word holds everywhere."""
    return topology.root


def split_name(variable: str) -> tuple[str, str]:
    """(publisher, variable) of PUBLISHER/VARIABLE."""
    publisher, _, name = variable.partition("/")
    if not publisher or not name:
        raise ConfigError(f"{variable!r} is no variable: write PUBLISHER/VARIABLE")
    return publisher, name


def mask(text: str) -> int:
    """The bits of modes given as `all`, `3` or `0-3,5`."""
    if text == "all":
        return ALL_MODES
    found = 0
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()) or not int(low) <= int(high or low) <= 15:
            raise ConfigError(f"--modes {text}: write modes from 0 to 15 like 3, 0-3,5 or all")
        for mode in range(int(low), int(high or low) + 1):
            found |= 1 << mode
    return found
