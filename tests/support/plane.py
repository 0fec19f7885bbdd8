"""A management plane in memory: brokers and model routers, links that can be cut, processes that can be lost.

Virtual time. Messages of one link and direction keep their order; which link is served next is chosen by `choose`.
A broker process is a `Broker` with the duties of its shell: what follows a `Persist` leaves after it is committed, a
commit of an old epoch is refused and ends that process.

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

from chappe.status.machine import Address, Broker, Change, Output, Persist, Send
from chappe.status.topology import Topology
from chappe.wire.base import Message, Request
from chappe.wire.control import decode, encode
from chappe.wire.management import Child, Join, Lead, Standby
from tests.support.modelrouter import ModelRouter

TICK_NS = 50_000_000


class Stored:
    """The durable state of a role, with the epoch that may write it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.items: dict[tuple[str, str], bytes] = {}

    def commit(self, epoch: int, changes: Iterable[Change]) -> bool:
        if epoch != self.epoch:
            return False
        for change in changes:
            if change.value is None:
                self.items.pop((change.kind, change.key), None)
            else:
                self.items[change.kind, change.key] = change.value
        return True

    def dump(self) -> list[Change]:
        return [Change(kind, key, value) for (kind, key), value in sorted(self.items.items())]


class Process:
    """A broker and what its shell does."""

    def __init__(self, name: str, role: str, broker: Broker) -> None:
        self.name, self.role, self.broker = name, role, broker
        self.outbox: deque[Output] = deque()
        self.paused = False
        self.unnoticed: deque[tuple[Callable[[Process, str], None], str]] = deque()  # links that changed meanwhile
        self.fenced = False
        self.parents: dict[str, bool] = {}  # processes of the parent role that are connected
        self.parent = ""  # the one that leads
        self.children: dict[Address, tuple[str, int]] = {}  # process and epoch that spoke last for each child
        self.parent_epoch = 0
        self.told = False  # the broker knows that there is a parent
        self.greeting: Child | None = None  # what it said to the parent first
        self.greeted: set[str] = set()  # those that have not answered it


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
        self.stores: dict[str, Stored] = {broker.name: Stored() for broker in topology.broker}
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
        process = self.processes[name] = Process(name, role, self.make(role))
        for other in self._neighbours(process):
            self._connect(name, other)
        if lead:
            self.elect(name)
        return process.broker

    def elect(self, name: str) -> None:
        """The process gets the lease of its role."""
        process = self.processes[name]
        stored = self.stores[process.role]
        stored.epoch += 1
        process.broker.restore(stored.dump())
        self._out(process, process.broker.lead(stored.epoch, self.now_ns))
        for peer in [pair[1] for pair in self.queues if pair[0] == name]:
            address = self._address(process, peer)
            if address.startswith("child/") and process.children.get(address, ("", 0))[0] != peer:
                continue
            if address != "parent" or not process.told:
                process.told |= address == "parent"
                self._out(process, process.broker.connected(address, self.now_ns))
            if address.startswith(("router/", "child/")):
                self._out(process, [Send(address, Lead(role=process.role, epoch=stored.epoch))])

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
        if process.fenced:
            return  # it knows that its term is over
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
        address = self._address(process, peer)
        if address == "parent":
            process.parents[peer] = True
            if process.told and process.greeting is not None:  # it may lead by now
                self.put(process.name, peer, process.greeting)
                return
        if process.broker.epoch and not address.startswith("child/"):  # which of its processes speaks, it says first
            process.told |= address == "parent"
            self._out(process, process.broker.connected(address, self.now_ns))

    def _lost(self, process: Process, peer: str) -> None:
        if process.paused:
            process.unnoticed.append((self._lost, peer))
            return
        address = self._address(process, peer)
        if address == "parent":
            process.parents.pop(peer, None)
            if process.parents and process.parent not in ("", peer):
                return
            self._no_parent(process)
            return
        if address.startswith("child/"):
            if process.children.get(address, ("", 0))[0] != peer:
                return
            del process.children[address]
        self._drop(process, address)
        if process.broker.epoch:
            self._out(process, process.broker.lost(address, self.now_ns))

    def _no_parent(self, process: Process) -> None:
        """The parent is not who it was; whoever is there is asked who leads."""
        process.parent = ""
        self._drop(process, "parent")
        if not process.broker.epoch:
            return
        if process.told:
            self._out(process, process.broker.lost("parent", self.now_ns))
        process.told = bool(process.parents)
        if process.parents:
            self._out(process, process.broker.connected("parent", self.now_ns))

    def _drop(self, process: Process, address: Address) -> None:
        """What waits for a commit and was meant for that connection does not leave on another one."""
        process.outbox = deque(o for o in process.outbox if isinstance(o, Persist) or o.to != address)

    def _address(self, process: Process, peer: str) -> Address:
        if peer in self.routers or peer in self.clouds:
            return f"router/{peer}"
        if peer in self.operators:
            return peer
        role = peer.partition("#")[0]
        return "parent" if role == self.topology.brokers[process.role].parent else f"child/{role}"

    # delivery

    def step(self) -> bool:
        """One thing happens: a message arrives, or a process commits and sends; False if nothing is left to do."""
        ready: list[tuple[str, str] | Process] = [
            pair for pair, queue in self.queues.items() if queue and not self._stands_still(pair[1])
        ]
        ready += [process for process in self.processes.values() if process.outbox and not process.paused]
        if not ready:
            return False
        self.steps += 1
        chosen = ready[self.choose(len(ready))]
        if isinstance(chosen, Process):
            self._flush(chosen)
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
        for process in list(self.processes.values()):
            if not process.paused:
                self._out(process, process.broker.tick(self.now_ns))

    def _stands_still(self, name: str) -> bool:
        process = self.processes.get(name)
        return name in self.stalled or (process is not None and process.paused)

    def _deliver(self, source: str, target: str) -> None:
        message = decode(self.queues[source, target].popleft())
        self.trace.append((source, target, message))
        if target in self.routers:
            self.routers[target].receive(source, message)
        elif target in self.operators:
            if isinstance(message, Request):
                self.operators[target].answers[message.id] = message
        else:
            self._receive(self.processes[target], source, message)

    def _receive(self, process: Process, source: str, message: Message) -> None:
        address = self._address(process, source)
        if address.startswith("child/") and not self._speaks(process, address, source, message):
            return
        if process.broker.epoch == 0:
            if isinstance(message, Join | Child):
                self.put(process.name, source, Standby(role=process.role))
            return
        if address == "parent":
            match message:
                case Lead() if message.epoch < process.parent_epoch:
                    return
                case Lead():
                    known = source == process.parent and message.epoch == process.parent_epoch
                    anew = not known and source not in process.greeted
                    process.greeted.discard(source)
                    process.parent_epoch = message.epoch
                    if anew:  # it has just begun to lead and knows nothing of this child
                        self._no_parent(process)
                        return
                    process.parent = source
                case Standby():
                    process.greeted.discard(source)
                    if source == process.parent:
                        self._no_parent(process)
                    return
                case _ if source != process.parent:
                    return
        self._out(process, process.broker.receive(address, message, self.now_ns))

    def _speaks(self, process: Process, address: Address, source: str, message: Message) -> bool:
        """Whether this process speaks for its role: the one that said so last, in no older epoch than another."""
        peer, epoch = process.children.get(address, ("", 0))
        if not isinstance(message, Child):
            return peer == source
        if peer != source and epoch > message.epoch:
            return False
        process.children[address] = (source, message.epoch)
        if peer != source and process.broker.epoch:
            if peer:
                self._drop(process, address)
                self._out(process, process.broker.lost(address, self.now_ns))
            self._out(process, process.broker.connected(address, self.now_ns))
        return True

    def _out(self, process: Process, outputs: Iterable[Output]) -> None:
        process.outbox.extend(outputs)

    def _flush(self, process: Process) -> None:
        """Commit the next changes, if any are waiting, and send what follows up to the ones after."""
        first = True
        while process.outbox and (first or not isinstance(process.outbox[0], Persist)):
            output = process.outbox.popleft()
            first = False
            if isinstance(output, Persist):
                if not self.stores[process.role].commit(process.broker.epoch, output.changes):
                    process.fenced = process.paused = True
                    process.outbox.clear()
                    return
                continue
            if isinstance(output.message, Child):
                process.greeting = output.message
                process.greeted = set(process.parents)
                process.parent = ""
            for peer in self._peers(process, output.to):
                self.put(process.name, peer, output.message)

    def _peers(self, process: Process, address: Address) -> list[str]:
        if address == "parent":
            return [process.parent] if process.parent else list(process.parents)
        kind, _, name = address.partition("/")
        if kind == "child":
            return [process.children[address][0]] if address in process.children else []
        return [name if kind == "router" else address]
