"""A malicious node: it has a certificate that all believe, and says and sends what it should not."""

from __future__ import annotations

import secrets
import time
from itertools import count
from typing import ClassVar

from bench.hostile.attack import Attack, AttackError, Budget, Effort, Tally, Target
from bench.hostile.evidence import Evidence
from bench.hostile.wire import Wire
from chappe.errors import ChappeError
from chappe.runtime.mesh.signing import Signer
from chappe.security.config import Tls
from chappe.security.credentials import Credentials
from chappe.wire import control
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.mesh import (
    Digest,
    InterestAdvert,
    LinkAdvert,
    LinkFact,
    MeshJoin,
    Statement,
    StatementRequest,
    encode_advert,
)
from chappe.wire.patterns import Pattern

AT_ONCE = 50
JOINED_S = 20.0  # until the mesh has taken up a neighbour
HUGE = 20_000  # patterns in one advertisement
LINK = secrets.token_bytes(16)


class MaliciousNode(Attack):
    """A neighbour that joined the mesh."""

    who: ClassVar[str] = "mallet"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.numbers = count(1)
        self.signers: dict[str, Signer] = {}

    def prepare(self) -> None:
        self.join()

    def join(self) -> Wire:
        """Connect and join the mesh."""
        self.wire = self.target.neighbour()
        self.wires.append(self.wire)
        self.wire.send(MeshJoin(name="mallet", unit="", link=LINK, kind="tls"))
        return self.wire

    def strike(self, effort: Effort) -> Tally:
        budget = Budget(effort)
        while budget.left:
            try:
                self.say(budget)
                self.wire.flush()
            except (ChappeError, OSError):
                budget.act(refused=1)
                self.release()
                self.join()
        return budget.tally

    def say(self, budget: Budget) -> None:
        """One round of what this attack says."""
        raise NotImplementedError

    def signed(self, advert: LinkAdvert | InterestAdvert, by: str = "mallet") -> Statement:
        """A statement with a good signature of a node whose key the attacker has."""
        body = encode_advert(advert)
        return Statement(body=body, signature=self.signer(by)(body))

    def signer(self, name: str) -> Signer:
        if name not in self.signers:
            pki = self.target.pki
            tls = Tls(ca=f"{pki}/ca.pem", cert=f"{pki}/{name}.pem", key=f"{pki}/{name}.key")
            self.signers[name] = Signer(Credentials(tls))
        return self.signers[name]

    def links(self, originator: str = "mallet", *facts: LinkFact, time_ns: int = 0) -> LinkAdvert:
        return LinkAdvert(
            origin=originator, level=0, scope="", originator=originator, sequence=next(self.numbers),
            time_ns=time_ns or time.time_ns(), links=facts,
        )  # fmt: skip

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused")


class SignedGarbage(MaliciousNode):
    """Statements that are signed and make no sense, are not signed, or are signed by another than they say."""

    name = "signed garbage of a node"

    def say(self, budget: Budget) -> None:
        fact = LinkFact(LINK, "target", 0, "tls", False, 0.001, 0.0, 0.0)
        good = self.signed(self.links("mallet", fact))
        garbage = secrets.token_bytes(200)
        self.wire.send(
            Statement(body=garbage, signature=self.signer("mallet")(garbage)),
            Statement(body=good.body, signature=secrets.token_bytes(64)),
            Statement(body=good.body[:-1] + b"\x00", signature=good.signature),
            self.signed(self.links("mallet", LinkFact(LINK, "target", 0, "tls", False, -1.0))),
            self.signed(self.links("mallet", fact, fact)),
            self.signed(self.links("mallet", LinkFact(LINK, "mallet", 0))),
        )
        budget.act(6)


class LiesAboutOthers(MaliciousNode):
    """Statements in the name of other nodes, and of links that others know nothing of."""

    name = "lies of a node about others"

    def say(self, budget: Budget) -> None:
        fact = LinkFact(secrets.token_bytes(16), "mute", 0, "tls", False, 0.001, 0.0, 0.0)
        interest = InterestAdvert(
            origin="target", level=0, scope="", originator="target", sequence=1 << 40, time_ns=time.time_ns()
        )
        self.wire.send(
            self.signed(self.links("target", fact)),
            self.signed(self.links("mute")),
            self.signed(interest),
            self.signed(self.links("mallet", fact)),
        )
        budget.act(4)


class ReplayedStatements(MaliciousNode):
    """Old statements of a node that has failed, with its good signature."""

    name = "replayed statements"

    def prepare(self) -> None:
        super().prepare()
        day_ns = 86_400_000_000_000
        self.old = [
            self.signed(self.links("mute", time_ns=time.time_ns() - days * day_ns), by="mute") for days in range(1, 30)
        ]

    def say(self, budget: Budget) -> None:
        self.wire.send(*self.old)
        budget.act(len(self.old))


class AdvertFlood(MaliciousNode):
    """Good statements of its own, each newer than the one before, and questions for those of others."""

    name = "flood of statements"

    def say(self, budget: Budget) -> None:
        fact = LinkFact(LINK, "target", 0, "tls", False, 1.0 + budget.tally.acts % 7, 0.0, 0.0)
        keys = tuple(("l", 0, f"n{number}", f"n{number}") for number in range(500))
        for _ in range(AT_ONCE):
            self.wire.send(self.signed(self.links("mallet", fact)))
        self.wire.send(StatementRequest(keys=keys), Digest(adverts=tuple((key, 1) for key in keys)))
        budget.act(AT_ONCE + 2)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")


class HugeInterest(MaliciousNode):
    """Interest in very many topics, another set each time."""

    name = "huge interest of a node"

    def say(self, budget: Budget) -> None:
        turn = next(self.numbers)
        patterns = tuple(Pattern("s", f"mallet/{turn}/{number}/+") for number in range(HUGE))
        interest = InterestAdvert(
            origin="mallet", level=0, scope="", originator="mallet", sequence=turn, time_ns=time.time_ns(),
            patterns=patterns,
        )  # fmt: skip
        self.wire.send(self.signed(interest))
        budget.act()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")


class DeniedToNode(MaliciousNode):
    """Announces variables and forwards events that a deny rule of the node names for it."""

    name = "denied topics and variables of a node"

    def prepare(self) -> None:
        super().prepare()
        self.reader = self.open("honest")
        self.reader.ask(control.Subscribe, pattern="bench/denied")

    def say(self, budget: Budget) -> None:
        variable = control.Variable(next(self.numbers) + (9 << 22), "bench", "denied", "float", 0, 1, 3, 0)
        self.wire.send(
            control.Announce(variables=(variable,)),
            Issuer(1, 1, bytes(15) + b"\x01"),
            Topic(1, TopicName("bench/denied")),
            *(Event(1, next(self.numbers), b"forged", issuer=1) for _ in range(AT_ONCE)),
        )
        budget.act(AT_ONCE + 1)
        if self.reader.await_events(1, 0.05):
            budget.tally.succeeded.append("an event on a topic that is denied to the node was delivered")

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused to a neighbour", "publish") + evidence.lacks_log(
            "mallet", "refused to a neighbour", "register"
        )


class ForwardingQuota(MaliciousNode):
    """A client and a node together: the node wants whatever the client publishes, and each topic needs an entry."""

    name = "quota of forwarding entries"
    who = "mallory"

    def prepare(self) -> None:
        super().prepare()
        fact = LinkFact(LINK, "target", 0, "tls", False, 0.5, 0.0, 0.0)
        patterns = (Pattern("s", "mallory/#"), Pattern("s", "honest/#"))
        interest = InterestAdvert(
            origin="mallet",
            level=0,
            scope="",
            originator="mallet",
            sequence=1,
            time_ns=time.time_ns(),
            patterns=patterns,
        )
        self.wire.send(self.signed(self.links("mallet", fact)), self.signed(interest))
        self.publisher, self.honest = self.open(), self.open("honest")
        self.topics = count(1)
        if not self.forwards(JOINED_S):
            raise AttackError("the node does not forward to its malicious neighbour, which has joined the mesh")

    def say(self, budget: Budget) -> None:
        for _ in range(AT_ONCE * 4):
            self.publisher.publish(f"mallory/f/{next(self.topics)}", b"")
        self.publisher.flush()
        budget.act(AT_ONCE * 4)

    def strike(self, effort: Effort) -> Tally:
        tally = super().strike(effort)
        self.wire.events.clear()
        if not self.forwards(5.0):
            tally.succeeded.append("events of an honest client on a new topic are not forwarded")
        return tally

    def forwards(self, within_s: float) -> bool:
        """Whether the neighbour gets an event of an honest client on a topic that is new."""
        topic = f"honest/{next(self.topics)}"
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            self.honest.publish(topic, b"honest")
            self.honest.flush()
            before = len(self.wire.events)
            if any(event.body == b"honest" for event in self.wire.await_events(before + 1, 0.5)[before:]):
                return True
        return False

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallory")


class NodeControlFlood(MaliciousNode):
    """Control messages without end: those of nodes were never paused."""

    name = "flood of control messages of a node"

    def say(self, budget: Budget) -> None:
        burst = b"".join(
            encode_frame(Kind.CONTROL, control.encode(control.Retract(variable_ids=(number,))))
            for number in range(AT_ONCE * 10)
        )
        self.wire.sock.sendall(burst)
        budget.act(AT_ONCE * 10)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")
