"""A management plane in memory with chosen order of delivery: real brokers and role machines, model routers.

Virtual time. Messages of one link and direction keep their order; which link is served next, and when a process begins
or ends a commit, is chosen by `choose`. The store is the simulator's: a commit of an old epoch is refused and ends the
term of that process.

    plane = Plane(topology, lambda role: LeafBroker(role, topology, 1))
    plane.start("leaf")                      # the process leads at once; more of one role: start("leaf#1", lead=False)
    plane.start_routers()
    plane.settle()                           # deliver until nothing is under way
    plane.advance(seconds=5)                 # let time pass
    plane.kill("leaf"); plane.start("leaf")  # restarts from what it had committed
    plane.cut("r1", "leaf"); plane.heal("r1", "leaf")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from chappe.core.broker.log import BrokerLog
from chappe.core.broker.machine import BrokerMachine
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.errors import StaleEpochError
from chappe.machine import Audit, AuditIntent, AuditWritten, Change, Close, Connected, Disconnected, Effect, Send
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.sim.managed.store import RoleStore
from chappe.status.machine import Broker
from chappe.status.topology import Topology
from chappe.wire.base import Answer, Message, Request
from chappe.wire.control import decode, encode
from tests.support.modelrouter import ModelRouter

TICK_NS = 50_000_000


class Process:
    """A process of a broker's role: the machine, its connections, and the transaction that is under way."""

    def __init__(self, plane: Plane, name: str, role: str, broker: Broker) -> None:
        self.name, self.role, self.broker = name, role, broker
        self.paused = False
        self.unnoticed: deque[tuple[Callable[[Process, str], None], str]] = deque()  # links that changed meanwhile
        self.ports: dict[str, int] = {}  # by the name of the other end
        self.sessions = Sessions()
        self.transaction: tuple[int, list[Change]] | None = None  # with its epoch
        self.next_port = 1
        self.machine = BrokerMachine(
            _shown(name), role, plane.topology, RuleBook.open, lambda epoch: True, self.sessions, BrokerLog(role),
            lambda: plane.now_ns,
        )  # fmt: skip

    @property
    def ready(self) -> bool:
        """Whether it has a transaction to begin or to end."""
        return not self.paused and (self.transaction is not None or self.machine.has_changes)


class Operator:
    """A person at a broker: requests and their answers."""

    def __init__(self, plane: Plane, name: str, process: str) -> None:
        self.plane, self.name, self.process = plane, name, process
        self.answers: dict[int, Message] = {}
        self.next_id = 1

    def ask(self, kind: Callable[..., Request], **fields: object) -> int:
        request = kind(id=self.next_id, **fields)
        self.next_id += 1
        self.plane.put(self.name, self.process, request)
        return request.id


class Plane:
    """Everything that manages one deployment; names of processes are `ROLE` or `ROLE#n`."""

    def __init__(
        self, topology: Topology, make: Callable[[str], Broker], choose: Callable[[int], int] | int = 0
    ) -> None:
        self.topology, self.make = topology, make
        self.choose = Random(choose).randrange if isinstance(choose, int) else choose
        self.now_ns = 1_000_000_000
        self.stores: dict[str, RoleStore] = {broker.name: RoleStore(broker.name) for broker in topology.broker}
        self.processes: dict[str, Process] = {}
        self.routers: dict[str, ModelRouter] = {}
        self.operators: dict[str, Operator] = {}
        self.queues: dict[tuple[str, str], deque[bytes]] = {}  # of links that are up, by direction
        self.severed: set[frozenset[str]] = set()
        self.stalled: set[str] = set()  # routers that stand still: connected, and what is sent to them waits
        self.clouds: dict[str, str] = {}  # of the routers that were started
        self.steps = 0
        self.trace: list[tuple[str, str, Message]] = []

    # processes

    def start(self, name: str, lead: bool = True) -> Broker:
        """Start a broker process; with `lead` it is the active one of its role at once."""
        role = name.partition("#")[0]
        process = self.processes[name] = Process(self, name, role, self.make(role))
        for other in self._neighbours(process):
            self._connect(name, other)
        if lead:
            self.elect(name)
        return process.broker

    def elect(self, name: str) -> None:
        """The process gets the lease of its role; whoever had it does not know yet."""
        process = self.processes[name]
        store = self.stores[process.role]
        epoch = store.acquire(name, self.now_ns, 0)
        assert epoch is not None
        process.broker.restore(store.load())
        self._carry_out(process, process.machine.lead(process.broker, epoch, self.now_ns))

    def start_routers(self, *names: str) -> None:
        """Start routers (all of them): they connect to every process of their role."""
        for spec in self.topology.router:
            if not names or spec.name in names:
                self.start_router(spec.name, spec.cloud)

    def start_router(self, name: str, role: str) -> ModelRouter:
        router = self.routers.get(name)
        if router is None:
            router = self.routers[name] = ModelRouter(name, lambda to, message: self.put(name, to, message))
        self.clouds[name] = role
        for process in list(self.processes.values()):
            if process.role == role:
                self._connect(name, process.name)
        return router

    def kill(self, name: str) -> None:
        """A process ends: what it had not committed and what was on its way from or to it is gone."""
        for one, other in [pair for pair in self.queues if pair[0] == name]:
            self._disconnect(one, other)
        if name in self.routers:
            self.stalled.discard(name)
            self.routers[name].restart()
        else:
            del self.processes[name]

    def pause(self, name: str) -> None:
        """A process stands still and notices nothing."""
        self.processes[name].paused = True

    def resume(self, name: str) -> None:
        process = self.processes[name]
        process.paused = False
        while process.unnoticed:
            notice, peer = process.unnoticed.popleft()
            notice(process, peer)

    def operator(self, process: str) -> Operator:
        """Somebody connected to that process."""
        name = f"operator/{len(self.operators)}"
        self.operators[name] = Operator(self, name, process)
        self._connect(name, process)
        return self.operators[name]

    def broker(self, name: str) -> Broker:
        return self.processes[name].broker

    # links

    def cut(self, one: str, other: str) -> None:
        """The link fails: both sides notice, what was on its way is gone."""
        self.severed.add(frozenset((one, other)))
        self._disconnect(one, other)

    def heal(self, one: str, other: str) -> None:
        self.severed.discard(frozenset((one, other)))
        self._connect(one, other)

    def put(self, one: str, other: str, message: Message) -> None:
        """Into the queue of that direction, if the link is there."""
        queue = self.queues.get((one, other))
        if queue is not None:
            queue.append(encode(message))

    def _neighbours(self, process: Process) -> list[str]:
        parent = self.topology.brokers[process.role].parent
        children = set(self.topology.children(process.role))
        brokers = [other.name for other in self.processes.values() if other.role == parent or other.role in children]
        return brokers + [name for name, cloud in self.clouds.items() if cloud == process.role]

    def _connect(self, one: str, other: str) -> None:
        if frozenset((one, other)) in self.severed or (one, other) in self.queues:
            return
        self.queues[one, other] = deque()
        self.queues[other, one] = deque()
        for name, peer in ((one, other), (other, one)):
            if name in self.routers:
                self.routers[name].connected(peer)
            elif name in self.processes:
                self._connected(self.processes[name], peer)

    def _disconnect(self, one: str, other: str) -> None:
        if self.queues.pop((one, other), None) is None:
            return
        del self.queues[other, one]
        for name, peer in ((one, other), (other, one)):
            if name in self.routers:
                self.routers[name].lost(peer)
            elif name in self.processes:
                self._lost(self.processes[name], peer)

    def _connected(self, process: Process, peer: str) -> None:
        if process.paused:
            process.unnoticed.append((self._connected, peer))
            return
        port = process.ports[peer] = process.next_port
        process.next_port += 1
        role = "client" if peer in self.operators else "node"
        above = self.topology.brokers[process.role].parent
        process.sessions.open(Session(
            port, _shown(peer), role, dev_identity(_shown(peer), "admin" if role == "client" else "node"),
            manager=bool(above) and peer.partition("#")[0] == above,
        ))  # fmt: skip
        self._carry_out(process, process.machine.receive(port, Connected(), self.now_ns))

    def _lost(self, process: Process, peer: str) -> None:
        if process.paused:
            process.unnoticed.append((self._lost, peer))
            return
        port = process.ports.pop(peer)
        effects = process.machine.receive(port, Disconnected(), self.now_ns)
        process.sessions.close(port)
        self._carry_out(process, effects)

    # delivery

    def step(self) -> bool:
        """One thing happens: a message arrives, a process begins or ends a commit; False if nothing is left to do."""
        ready: list[tuple[str, str] | Process] = [
            pair for pair, queue in self.queues.items() if queue and not self._stands_still(pair[1])
        ]
        ready += [process for process in self.processes.values() if process.ready]
        if not ready:
            return False
        self.steps += 1
        chosen = ready[self.choose(len(ready))]
        if isinstance(chosen, Process):
            self._commit(chosen)
        else:
            self._deliver(*chosen)
        return True

    def settle(self, limit: int = 100_000) -> None:
        """Deliver until nothing is under way."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError(f"still busy after {limit} steps: {self.trace[-5:]}")

    def advance(self, seconds: float = 0.05, tick_ns: int = TICK_NS) -> None:
        """Let time pass in ticks, and deliver everything meanwhile."""
        end = self.now_ns + round(seconds * 1e9)
        self.settle()
        while self.now_ns < end:
            self.now_ns = min(end, self.now_ns + tick_ns)
            self.tick()
            self.settle()

    def tick(self) -> None:
        """Processes whose machine asked to be called by now."""
        for process in list(self.processes.values()):
            if not process.paused and process.machine.next_tick() <= self.now_ns:
                self._carry_out(process, process.machine.tick(self.now_ns))

    def _stands_still(self, name: str) -> bool:
        process = self.processes.get(name)
        return name in self.stalled or (process is not None and process.paused)

    def _deliver(self, source: str, target: str) -> None:
        message = decode(self.queues[source, target].popleft())
        self.trace.append((source, target, message))
        if target in self.routers:
            self.routers[target].receive(source, message)
        elif target in self.operators:
            if isinstance(message, Answer):
                self.operators[target].answers[message.id] = message
        else:
            process = self.processes[target]
            assert process.machine.takes(message), message
            self._carry_out(process, process.machine.receive(process.ports[source], message, self.now_ns))

    def _commit(self, process: Process) -> None:
        """Begin the next transaction, or end the one that is under way and let what follows leave."""
        if process.transaction is None:
            process.transaction = (process.machine.epoch, process.machine.changes())
            return
        epoch, changes = process.transaction
        process.transaction = None
        try:
            self.stores[process.role].commit(epoch, changes)
        except StaleEpochError as error:
            self._carry_out(process, process.machine.resign(str(error)))
        else:
            self._carry_out(process, process.machine.committed(epoch))

    def _carry_out(self, process: Process, effects: Iterable[Effect]) -> None:
        assert not process.machine.resigned.startswith("the broker failed"), process.machine.resigned
        peers = {port: peer for peer, port in process.ports.items()}
        for effect in effects:
            match effect:
                case Send(int() as port, message) | Audit(answer=Send(int() as port, message)):
                    if port in peers:
                        self.put(process.name, peers[port], message)
                case AuditIntent():
                    written = AuditWritten(effect.number)
                    self._carry_out(process, process.machine.receive(effect.source, written, self.now_ns))
                case Close(int() as port):
                    self._disconnect(process.name, peers[port])


def _shown(name: str) -> str:
    """A process as others see it: `ROLE-1` for `ROLE#1`."""
    return name.replace("#", "-")
