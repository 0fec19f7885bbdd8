"""Durable events that an archive has stored, so that it stores each once, and the confirmations it sends for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from chappe.errors import ProtocolError
from chappe.wire.addresses import Address, check_address, confirm_address
from chappe.wire.durable import Confirmation, encode_confirmation

OWN = "archive/"  # topics of archives, which no archive keeps
ISSUERS = 4096  # publishers of durable events that are remembered
REMEMBERED = 65_536  # durable events of each


class Identity(NamedTuple):
    """The same however often and by whichever route an event arrives."""

    issuer: bytes
    epoch: int
    sequence: int


def ranges(sequences: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as ranges of those that follow each other."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(sequences)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return tuple(runs)


class KnownEvents:
    """Which events are stored or on their way, so that one that is sent again is stored once.

    It remembers the newest of each issuer, and the issuers that were heard last.
    """

    def __init__(self, issuers: int = ISSUERS, remembered: int = REMEMBERED) -> None:
        self._issuers = issuers
        self._remembered = remembered
        self._stored: OrderedDict[bytes, OrderedDict[tuple[int, int], bool]] = OrderedDict()

    def record_arrival(self, identity: Identity) -> bool | None:
        """True: it is stored; False: it is on its way; None: it is new, and on its way from now on."""
        found = self._stored.get(identity.issuer)
        if found is None:
            found = self._stored[identity.issuer] = OrderedDict()
            if len(self._stored) > self._issuers:
                self._stored.popitem(last=False)
        else:
            self._stored.move_to_end(identity.issuer)
        known = found.get(identity[1:])
        if known is None:
            found[identity[1:]] = False
            if len(found) > self._remembered:
                found.popitem(last=False)
        return known

    def is_stored(self, issuer: bytes, epoch: int, sequence: int) -> bool:
        """Whether it is known to be stored; unlike `record_arrival` this remembers nothing."""
        found = self._stored.get(issuer)
        return found is not None and found.get((epoch, sequence), False)

    def settle(self, identities: Iterable[Identity], stored: bool) -> None:
        """They are stored, or were not taken and may come again."""
        for identity in identities:
            found = self._stored.get(identity.issuer)
            if found is None or identity[1:] not in found:
                continue
            if stored:
                found[identity[1:]] = True
            else:
                del found[identity[1:]]


class DurableEvent(NamedTuple):
    """A durable event, and the address of its publisher's node."""

    identity: Identity
    origin: str


def confirmations(archive: str, events: Iterable[DurableEvent]) -> list[tuple[Address, bytes]]:
    """Confirmations and the addresses they go to; none for a publisher whose node has no valid address."""
    together: dict[tuple[str, bytes, int], list[int]] = {}
    for (issuer, epoch, sequence), origin in events:
        together.setdefault((origin, issuer, epoch), []).append(sequence)
    messages = []
    for (origin, issuer, epoch), sequences in together.items():
        address = confirm_address(origin, issuer)
        try:
            check_address(address)
        except ProtocolError:
            continue
        messages.append(
            (
                Address(address),
                encode_confirmation(Confirmation(archive=archive, epoch=epoch, ranges=ranges(sequences))),
            )
        )
    return messages
