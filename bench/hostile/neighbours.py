"""A malicious node: it has a certificate that all believe, and says and sends what it should not."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from itertools import count

from bench.hostile.attack import Attack, AttackError, Budget, Effort, Tally
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


class MaliciousNode:
    """A neighbour that joined the mesh, for the attack that speaks as it."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.numbers = count(1)
        self._signers: dict[str, Signer] = {}
        self.wire = self._join()

    def _join(self) -> Wire:
        """Connect and join the mesh."""
        wire = self._attack.target.neighbour()
        self._attack.wires.append(wire)
        wire.send(MeshJoin(name="mallet", unit="", link=LINK, kind="tls"))
        return wire

    def run(self, effort: Effort, say: Callable[[Budget], None]) -> Tally:
        """Rounds of what the attack says until the effort is spent."""
        budget = Budget(effort)
        while budget.left:
            try:
                say(budget)
                self.wire.flush()
            except (ChappeError, OSError):
                budget.act(refused=1)
                self._attack.release()
                self.wire = self._join()
        return budget.tally

    def signed(self, advert: LinkAdvert | InterestAdvert, by: str = "mallet") -> Statement:
        """A statement with a good signature of a node whose key the attacker has."""
        body = encode_advert(advert)
        return Statement(body=body, signature=self.signer(by)(body))

    def signer(self, name: str) -> Signer:
        if name not in self._signers:
            pki = self._attack.target.pki
            tls = Tls(ca=f"{pki}/ca.pem", cert=f"{pki}/{name}.pem", key=f"{pki}/{name}.key")
            self._signers[name] = Signer(Credentials(tls))
        return self._signers[name]

    def links(self, originator: str = "mallet", *facts: LinkFact, time_ns: int = 0) -> LinkAdvert:
        return LinkAdvert(
            origin=originator, level=0, scope="", originator=originator, sequence=next(self.numbers),
            time_ns=time_ns or time.time_ns(), links=facts,
        )  # fmt: skip


class SignedGarbage(Attack):
    """Statements that are signed and make no sense, are not signed, or are signed by another than they say."""

    name = "signed garbage of a node"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        fact = LinkFact(LINK, "target", 0, "tls", False, 0.001, 0.0, 0.0)
        good = self.node.signed(self.node.links("mallet", fact))
        garbage = secrets.token_bytes(200)
        self.node.wire.send(
            Statement(body=garbage, signature=self.node.signer("mallet")(garbage)),
            Statement(body=good.body, signature=secrets.token_bytes(64)),
            Statement(body=good.body[:-1] + b"\x00", signature=good.signature),
            self.node.signed(self.node.links("mallet", LinkFact(LINK, "target", 0, "tls", False, -1.0))),
            self.node.signed(self.node.links("mallet", fact, fact)),
            self.node.signed(self.node.links("mallet", LinkFact(LINK, "mallet", 0))),
        )
        budget.act(6)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused")


class LiesAboutOthers(Attack):
    """Statements in the name of other nodes, and of links that others know nothing of."""

    name = "lies of a node about others"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        fact = LinkFact(secrets.token_bytes(16), "mute", 0, "tls", False, 0.001, 0.0, 0.0)
        interest = InterestAdvert(
            origin="target", level=0, scope="", originator="target", sequence=1 << 40, time_ns=time.time_ns()
        )
        self.node.wire.send(
            self.node.signed(self.node.links("target", fact)),
            self.node.signed(self.node.links("mute")),
            self.node.signed(interest),
            self.node.signed(self.node.links("mallet", fact)),
        )
        budget.act(4)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused")


class ReplayedStatements(Attack):
    """Old statements of a node that has failed, with its good signature."""

    name = "replayed statements"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)
        day_ns = 86_400_000_000_000
        self.old = [
            self.node.signed(self.node.links("mute", time_ns=time.time_ns() - days * day_ns), by="mute")
            for days in range(1, 30)
        ]

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        self.node.wire.send(*self.old)
        budget.act(len(self.old))

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused")


class AdvertFlood(Attack):
    """Good statements of its own, each newer than the one before, and questions for those of others."""

    name = "flood of statements"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        fact = LinkFact(LINK, "target", 0, "tls", False, 1.0 + budget.tally.acts % 7, 0.0, 0.0)
        keys = tuple(("l", 0, f"n{number}", f"n{number}") for number in range(500))
        for _ in range(AT_ONCE):
            self.node.wire.send(self.node.signed(self.node.links("mallet", fact)))
        self.node.wire.send(StatementRequest(keys=keys), Digest(adverts=tuple((key, 1) for key in keys)))
        budget.act(AT_ONCE + 2)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")


class HugeInterest(Attack):
    """Interest in very many topics, another set each time."""

    name = "huge interest of a node"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        turn = next(self.node.numbers)
        patterns = tuple(Pattern("s", f"mallet/{turn}/{number}/+") for number in range(HUGE))
        interest = InterestAdvert(
            origin="mallet", level=0, scope="", originator="mallet", sequence=turn, time_ns=time.time_ns(),
            patterns=patterns,
        )  # fmt: skip
        self.node.wire.send(self.node.signed(interest))
        budget.act()

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")


class DeniedToNode(Attack):
    """Announces variables and forwards events that a deny rule of the node names for it."""

    name = "denied topics and variables of a node"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)
        self.reader = self.open("honest")
        self.reader.ask(control.Subscribe, pattern="bench/denied")

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        variable = control.Variable(next(self.node.numbers) + (9 << 22), "bench", "denied", "float", 0, 1, 3, 0)
        self.node.wire.send(
            control.Announce(variables=(variable,)),
            Issuer(1, 1, bytes(15) + b"\x01"),
            Topic(1, TopicName("bench/denied")),
            *(Event(1, next(self.node.numbers), b"forged", issuer=1) for _ in range(AT_ONCE)),
        )
        budget.act(AT_ONCE + 1)
        if self.reader.await_events(1, 0.05):
            budget.tally.succeeded.append("an event on a topic that is denied to the node was delivered")

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_log("mallet", "refused to a neighbour", "publish") + evidence.lacks_log(
            "mallet", "refused to a neighbour", "register"
        )


class ForwardingQuota(Attack):
    """A client and a node together: the node wants whatever the client publishes, and each topic needs an entry."""

    name = "quota of forwarding entries"
    who = "mallory"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)
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
        self.node.wire.send(self.node.signed(self.node.links("mallet", fact)), self.node.signed(interest))
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
        tally = self.node.run(effort, self.say)
        self.node.wire.events.clear()
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
            before = len(self.node.wire.events)
            if any(event.body == b"honest" for event in self.node.wire.await_events(before + 1, 0.5)[before:]):
                return True
        return False

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallory")


class NodeControlFlood(Attack):
    """Control messages without end: those of nodes were never paused."""

    name = "flood of control messages of a node"
    who = "mallet"

    def prepare(self) -> None:
        self.node = MaliciousNode(self)

    def strike(self, effort: Effort) -> Tally:
        return self.node.run(effort, self.say)

    def say(self, budget: Budget) -> None:
        burst = b"".join(
            encode_frame(Kind.CONTROL, control.encode(control.Retract(variable_ids=(number,))))
            for number in range(AT_ONCE * 10)
        )
        self.node.wire.sock.sendall(burst)
        budget.act(AT_ONCE * 10)

    def unseen(self, evidence: Evidence) -> list[str]:
        return evidence.lacks_counter("mallet", "chappe_port_control")
