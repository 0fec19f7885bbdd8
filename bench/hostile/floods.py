"""Frames of one kind without end, from a client that has every right to be connected."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from bench.hostile.attack import Attack, Budget, Effort, Tally
from chappe.errors import ChappeError
from chappe.wire import control
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.payloads import Payload, Probe, encode_payload

AT_ONCE = 200


class Flood:
    """Sends the same run of frames as often as the connection of an attack takes it, and reads nothing."""

    def __init__(self, attack: Attack, frames: Iterable[Payload]) -> None:
        self._attack = attack
        self._wire = attack.open()
        self._burst = b"".join(encode_frame(*encode_payload(one)) for one in frames)

    def run(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                self._wire.sock.settimeout(0.05)
                self._wire.sock.sendall(self._burst)
                budget.act(AT_ONCE)
            except TimeoutError:  # the node reads no more for now; what of the burst is cut is lost to framing
                self._again()
            except OSError:
                budget.act(refused=1)
                self._again()
        return budget.tally

    def _again(self) -> None:
        """Connect anew: a frame was cut in the middle, or the node has had enough."""
        self._attack.release()
        try:
            self._wire = self._attack.open()
        except (ChappeError, OSError):  # it has had enough of this identity: what is cut off counts until it is noticed
            return


class ControlFlood(Attack):
    """Requests that ask for nothing much."""

    name = "flood of control messages"

    def prepare(self) -> None:
        self.flood = Flood(
            self, (control.Unsubscribe(id=number + 1, pattern="mallory/none") for number in range(AT_ONCE))
        )

    def strike(self, effort: Effort) -> Tally:
        return self.flood.run(effort)


class ProbeFlood(Attack):
    """Probes, each of which wants an echo that nobody reads."""

    name = "flood of probes"

    def prepare(self) -> None:
        self.flood = Flood(self, (Probe(number + 1, 0, bytes(512)) for number in range(AT_ONCE)))

    def strike(self, effort: Effort) -> Tally:
        return self.flood.run(effort)


class TopicFlood(Attack):
    """The same topic number defined again and again."""

    name = "flood of topic definitions"

    def prepare(self) -> None:
        self.flood = Flood(self, (Topic(1, TopicName(f"mallory/{number}/x")) for number in range(AT_ONCE)))

    def strike(self, effort: Effort) -> Tally:
        return self.flood.run(effort)


class ParcelFlood(Attack):
    """Parcels that nobody takes."""

    name = "flood of parcels"

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        name = b"nobody"
        parcel = (
            b"\x01\x00\x00\x08" + len(name).to_bytes(2, "big") + name + b"\x00\x00" + bytes(8) + bytes(16) + bytes(64)
        )
        burst = encode_frame(Kind.PARCEL, parcel) * AT_ONCE
        wire = self.open()
        while budget.left:
            try:
                wire.sock.sendall(burst)
                budget.act(AT_ONCE)
            except (TimeoutError, OSError):
                budget.act(refused=1)
                wire.close()
                wire = self.open()
        return budget.tally


class Overrun(Attack):
    """A publisher that sends as fast as it can, above its rate."""

    name = "publisher above its rate"

    def prepare(self) -> None:
        self.sequence = count(1)

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        self.release()  # a frame may have been cut in the middle
        self.wire = self.open()
        self.number = self.wire.define("mallory/stream")
        self.wire.sock.settimeout(effort.seconds)
        while budget.left:
            events = [Event(self.number, next(self.sequence), bytes(48)) for _ in range(AT_ONCE)]
            try:
                self.wire.send(*events)
                budget.act(AT_ONCE)
            except TimeoutError:
                break
        return budget.tally
