"""One term of leadership: a state machine, its epoch, and what it has decided but not yet committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ParamSpec

import structlog

from chappe.runtime.broker.commits import Commits, Tally
from chappe.runtime.broker.links import PARENT
from chappe.status.machine import Address, Broker, Output, Send
from chappe.store import Changed
from chappe.wire.base import Message
from chappe.wire.management import Lead

log = structlog.get_logger(__name__)

P = ParamSpec("P")


class Term:
    """Everything in it ends together, so that nothing of an epoch that is over can be sent."""

    def __init__(
        self, broker: Broker, epoch: int, commit: Callable[[Sequence[Changed]], Awaitable[None]],
        leave: Callable[[list[Send]], None], over: Callable[[str], None], tally: Tally,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.epoch = epoch
        self._over = over
        self._commits = Commits(commit, leave, over, tally)

    @property
    def waiting(self) -> int:
        """Messages that wait for a commit."""
        return self._commits.waiting

    def begin(self, addresses: Iterable[Address], parent: bool, now_ns: int) -> list[Send]:
        """Lead those that are connected already: each of them is told."""
        return self._decide(self._begin, list(addresses), parent, now_ns)

    def _begin(self, addresses: list[Address], parent: bool, now_ns: int) -> list[Output]:
        outputs: list[Output] = []
        for address in addresses:
            outputs += self.broker.connected(address, now_ns)
        outputs += self.broker.lead(self.epoch, now_ns)
        told = {output.to for output in outputs if isinstance(output, Send) and isinstance(output.message, Lead)}
        below = [address for address in addresses if address.startswith(("router/", "child/"))]
        news = Lead(role=self.broker.role, epoch=self.epoch)
        outputs += [Send(address, news) for address in below if address not in told]
        if parent:  # it is greeted by a broker that leads
            outputs += self.broker.connected(PARENT, now_ns)
        return outputs

    def connected(self, address: Address, now_ns: int) -> list[Send]:
        return self._decide(self.broker.connected, address, now_ns)

    def lost(self, address: Address, now_ns: int) -> list[Send]:
        self._commits.forget(address)
        return self._decide(self.broker.lost, address, now_ns)

    def receive(self, address: Address, message: Message, now_ns: int) -> list[Send]:
        return self._decide(self.broker.receive, address, message, now_ns)

    def tick(self, now_ns: int) -> list[Send]:
        return self._decide(self.broker.tick, now_ns)

    def _decide(self, call: Callable[P, list[Output]], *args: P.args, **kwargs: P.kwargs) -> list[Send]:
        """What the broker makes of it. A defect may leave it half changed: the term ends, the store knows better."""
        try:
            outputs = call(*args, **kwargs)
        except Exception as error:
            log.exception("the broker failed", role=self.broker.role, epoch=self.epoch)
            self._over(f"the broker failed: {error!r}")
            return []
        return self._commits.put(outputs)

    async def settled(self) -> None:
        """Everything it decided is durable and has left."""
        await self._commits.settled()

    def end(self) -> None:
        """Nothing more leaves."""
        self._commits.end()
