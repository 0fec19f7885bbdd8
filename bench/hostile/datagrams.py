"""Datagrams: answers to questions that nobody asked, replays, and senders that move."""

from __future__ import annotations

import socket

from bench.hostile.attack import ATTACKER, Attack, Budget, Effort, Tally
from bench.hostile.evidence import Evidence
from bench.hostile.siphash import siphash128
from bench.hostile.wire import Wire
from chappe.errors import ChappeError
from chappe.wire import control
from chappe.wire.frames import encode_frame
from chappe.wire.payloads import Probe, Status, encode_payload
from chappe.wire.status import record


class Session:
    """A UDP data link beside a connection, as a client has it."""

    def __init__(self, wire: Wire, port: int, source: str) -> None:
        answer = wire.ask(control.OpenDatagram)
        if not isinstance(answer, control.DatagramOpened):
            raise ChappeError(f"the node opens no data link: {answer}")
        self.link, self.key, self.port = answer.link, answer.key, port
        self.sequence = 0
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((source, 0))

    def datagram(self, frame: bytes) -> bytes:
        """The next datagram with that frame."""
        self.sequence += 1
        head = self.link.to_bytes(4, "big") + self.sequence.to_bytes(8, "big")
        return head + frame + siphash128(self.key, head + frame)

    def send(self, datagram: bytes) -> None:
        self.sock.sendto(datagram, ("127.0.0.1", self.port))

    def heartbeat(self) -> bytes:
        return self.datagram(encode_frame(*encode_payload(Probe(0, 1))))


class UnsolicitedDatagramOpened(Attack):
    """Tells the node that a data link is open which it never asked for: each cost it a socket and a port."""

    name = "unsolicited DatagramOpened"
    who = "mallet"

    def prepare(self) -> None:
        self.connect()

    def connect(self) -> Wire:
        self.wire = self.target.neighbour()
        self.wires.append(self.wire)
        return self.wire

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                opened = [
                    control.DatagramOpened(id=1, port=9, link=budget.tally.acts + number, key=bytes(16))
                    for number in range(20)
                ]
                self.wire.send(*opened)
                self.wire.flush()
                budget.act(len(opened))
            except (ChappeError, OSError):
                budget.act(refused=1)
                self.release()
                self.connect()
        return budget.tally

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "DatagramOpened")


class ReplayedDatagrams(Attack):
    """Someone on the path sends datagrams of an honest client again, from another address, and forges some."""

    name = "replayed and moved datagrams"
    who = "honest"  # the link that is attacked: whoever is on the path has no name

    def prepare(self) -> None:
        self.victim = self.open("honest")
        answer = self.victim.ask(control.Register, publisher="honest", variable="udp")
        assert isinstance(answer, control.Registered)
        self.variable = answer.variable_id
        self.victim.ask(control.Watch, publisher="honest", variable="udp")
        self.session = Session(self.victim, self.target.udp, "127.0.0.1")
        self.thief = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.thief.bind((ATTACKER, 0))
        self.thief.settimeout(0.2)
        self.session.send(self.session.heartbeat())
        self.session.sock.settimeout(10.0)
        self.session.sock.recv(2_048)  # the node knows our address
        self.value = 0.0

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        place = ("127.0.0.1", self.target.udp)
        while budget.left:
            self.value += 1.0
            status = encode_frame(*encode_payload(Status((record(int(self.value), self.variable, self.value),))))
            datagram = self.session.datagram(status)
            self.session.send(datagram)
            for _ in range(20):
                self.thief.sendto(datagram, place)
                self.thief.sendto(datagram[:-16] + bytes(16), place)
                budget.act(2)
        self._moves(budget)
        return budget.tally

    def _moves(self, budget: Budget) -> None:
        """A datagram that is held back on the path and sent from another address must not draw the link there."""
        stolen = self.session.heartbeat()
        self.thief.sendto(stolen, ("127.0.0.1", self.target.udp))
        answers = 0
        try:
            while answers < 4:
                self.thief.recv(2_048)
                answers += 1
        except TimeoutError:
            pass
        if answers > 3:  # an echo and a challenge may go there, the stream may not
            budget.tally.succeeded.append("the data link of an honest client moved to the address of a thief")
        self.session.send(self.session.heartbeat())

    def release(self) -> None:
        super().release()
        self.session.sock.close()
        self.thief.close()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("honest", "datagram")
