"""Parallel TCP: one link over several connections, striped; those that are left go on when one is lost."""

from __future__ import annotations

import asyncio
import functools
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from chappe.errors import LinkError, ProtocolError, TimeoutExpired
from chappe.links.address import PARALLEL_MAX, Address
from chappe.links.factory import Dialling, Listening, Traits, check_context, check_proxy
from chappe.links.link import Accepted, Raw, reason_of
from chappe.links.listener import Finished, Listener, bind
from chappe.links.reach import reach
from chappe.links.striped import Reopen, Stripe, Striped
from chappe.links.striping import Preface, read_preface
from chappe.links.transported import TransportRaw, TransportStream, open_transport
from chappe.security.tls import handshake_reason

WAITING_MAX = 256  # links of which connections are still missing


@dataclass(slots=True, eq=False)
class _Waiting:
    """A link of which connections are missing."""

    count: int
    stripes: dict[int, Stripe] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # the link is used, or over
    failure: str = ""

    def drop(self, reason: str) -> None:
        self.failure = reason
        self.settled.set()
        if self.timer is not None:
            self.timer.cancel()
        for stripe in self.stripes.values():
            if stripe.transport is not None:
                stripe.transport.abort()


@dataclass(frozen=True, slots=True)
class Parallel(Traits):
    """`tcp://host:port?parallel=4`, and the same inside TLS: for bulk over long ways that lose some packets."""

    scheme: str = "tcp"

    def takes(self, address: Address) -> bool:
        return address.scheme == self.scheme and bool(address.option("parallel"))

    async def connect(self, address: Address, how: Dialling) -> Raw:
        check_context(address, self.encrypts, how.tls)
        check_proxy(address, how)
        link, count = secrets.token_bytes(16), int(address.option("parallel"))
        tasks = [asyncio.create_task(self._stripe(address, how, Preface(link, index, count))) for index in range(count)]
        try:
            stripes = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            for made in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(made, Stripe) and made.transport is not None:
                    made.transport.abort()
            raise

        async def reopen(index: int) -> Stripe:
            async with asyncio.timeout(how.options.connect_timeout_s):
                return await self._stripe(address, how, Preface(link, index, count))

        return self._raw(stripes, address, None, reopen)[0]

    async def _stripe(self, address: Address, how: Dialling, preface: Preface) -> Stripe:
        sock, rest = await reach(address, how)
        stripe = Stripe()
        name = how.server_name or address.host
        try:
            await open_transport(stripe, sock, how.tls, name)
        except ssl.SSLError as error:
            sock.close()
            raise LinkError(f"{address}: {handshake_reason(error)}") from error
        except OSError as error:
            sock.close()
            raise LinkError(f"{address}: {reason_of(error)}") from error
        except BaseException:
            sock.close()
            raise
        assert stripe.transport is not None
        stripe.early += rest
        stripe.transport.write(preface.encode())
        return stripe

    def _raw(
        self, stripes: list[Stripe], peer: Address, finished: Finished | None, reopen: Reopen | None = None
    ) -> tuple[Raw, Striped]:
        stream = TransportStream()
        striped = Striped(stripes, stream, reopen)
        raw = TransportRaw(stream, peer, finished)
        raw.kind = self.kind
        return raw, striped

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        check_context(address, self.encrypts, how.tls)
        waiting: dict[bytes, _Waiting] = {}
        live: dict[bytes, Striped] = {}
        timeout_s = how.options.handshake_timeout_s

        async def opener(sock: socket.socket, peer: Address, finished: Finished) -> Raw | None:
            stripe = Stripe()
            try:
                async with asyncio.timeout(timeout_s):
                    await open_transport(stripe, sock, how.tls, None)
                    preface = read_preface(await stripe.preface(), PARALLEL_MAX)
            except TimeoutError:
                _abort(stripe)
                raise TimeoutExpired(f"{peer} did not say which link it belongs to within {timeout_s:g} s") from None
            except BaseException:
                _abort(stripe)
                raise
            known = live.get(preface.link)
            if known is not None:
                _rejoin(known, preface, stripe)
                return None
            group, complete = _gather(waiting, preface, stripe, timeout_s)
            if not complete:
                await _settled(waiting, group, preface, stripe)
                return None

            def used(raw: Raw) -> None:
                group.settled.set()
                finished(raw)

            raw, striped = self._raw([group.stripes[index] for index in range(group.count)], peer, used)
            live[preface.link] = striped
            striped.on_over = functools.partial(_forget, live, preface.link)
            return raw

        def over() -> None:
            for group in waiting.values():
                group.drop("the listener was closed")
            waiting.clear()

        listener = await bind(address, opener, accepted, how.options)
        listener.on_close = over
        return listener


def _abort(stripe: Stripe) -> None:
    if stripe.transport is not None:
        stripe.transport.abort()


def _gather(
    waiting: dict[bytes, _Waiting], preface: Preface, stripe: Stripe, timeout_s: float
) -> tuple[_Waiting, bool]:
    """The link that it belongs to, and whether that is complete; ProtocolError if it does not belong there."""
    group = waiting.get(preface.link)
    if group is None:
        if len(waiting) >= WAITING_MAX:  # the one that has waited longest is the least likely to be complete soon
            waiting.pop(next(iter(waiting))).drop("too many parallel links are not complete")
        group = waiting[preface.link] = _Waiting(preface.count)
        forget: Callable[[], None] = lambda: _expire(waiting, preface.link, timeout_s)  # noqa: E731
        group.timer = asyncio.get_running_loop().call_later(timeout_s, forget)
    strange = group.stripes and _certificate(stripe) != _certificate(next(iter(group.stripes.values())))
    if preface.count != group.count or preface.index in group.stripes or strange:
        _abort(stripe)
        raise ProtocolError("a connection does not belong to the parallel link that it names")
    group.stripes[preface.index] = stripe
    if len(group.stripes) < group.count:
        return group, False
    del waiting[preface.link]
    if group.timer is not None:
        group.timer.cancel()
    return group, True


async def _settled(waiting: dict[bytes, _Waiting], group: _Waiting, preface: Preface, stripe: Stripe) -> None:
    """Until its link is used: a connection that waits counts as one whose handshake is not over.

    LinkError if the others did not come; cancelled, it takes the whole link with it.
    """
    try:
        await group.settled.wait()
    except BaseException:
        if waiting.get(preface.link) is group:
            del waiting[preface.link]
            group.drop("one of its connections was ended")
        _abort(stripe)
        raise
    if group.failure:
        raise LinkError(f"connection {preface.index} of a parallel link: {group.failure}")


def _rejoin(link: Striped, preface: Preface, stripe: Stripe) -> None:
    """A connection comes back to its link; ProtocolError if it is not of the one who had it."""
    if preface.count != link.count or _certificate(stripe) != _certificate_of(link.get_extra_info("ssl_object")):
        _abort(stripe)
        raise ProtocolError("a connection does not belong to the parallel link that it names")
    link.rejoin(preface.index, stripe)


def _forget(live: dict[bytes, Striped], link: bytes) -> None:
    live.pop(link, None)


def _expire(waiting: dict[bytes, _Waiting], link: bytes, timeout_s: float) -> None:
    group = waiting.pop(link, None)
    if group is not None:
        group.drop(f"{len(group.stripes)} of {group.count} connections came within {timeout_s:g} s")


def _certificate(stripe: Stripe) -> bytes | None:
    assert stripe.transport is not None
    return _certificate_of(stripe.transport.get_extra_info("ssl_object"))


def _certificate_of(secured: object) -> bytes | None:
    return cast(ssl.SSLObject, secured).getpeercert(binary_form=True) if secured is not None else None
