from collections.abc import Callable, Container, Iterable
from typing import Literal

from chappe.engine._accounts import Accounts
from chappe.engine._memory import MemoryBudget
from chappe.engine._stack import Stack
from chappe.engine._status import StatusTable
from chappe.engine._topics import TopicTable
from chappe.engine.routes import FlowRow, ParcelRoute, ParcelRow
from chappe.engine.routes import ForwardingDecision as ForwardingDecision
from chappe.engine.routes import Undelivered as Undelivered
from chappe.errors import ProtocolError

class Engine(Stack):
    """Forwards frames between ports: bytes in, bytes out, no file descriptor, no clock, no asyncio."""

    status: StatusTable
    topics: TopicTable
    allocations: int  # allocator calls since start, all tables and queues included
    memory: MemoryBudget
    accounts: Accounts
    route_error: Exception | None  # read only: the last one that plan_route or forward_route raised

    def __init__(
        self,
        *,
        layout: Literal["close", "sparse"] = "sparse",
        edge: bool = True,
        max_topics: int = 1 << 20,
        max_issuers: int = 1 << 17,
        max_routed_topics: int = 1 << 16,
        authorize: Callable[[int, str, bytes], bool] | None = None,
        plan_route: Callable[[str, bytes], ForwardingDecision] | None = None,
        forward_route: Callable[[int, bytes, str, bytes], ForwardingDecision] | None = None,
        parcel_routes: Callable[[bytes], list[ParcelRoute]] | None = None,
        seed: int | None = None,
        memory_bytes: int = 0,
        account_topics: int = 0,
        account_routed_topics: int = 0,
        account_bytes: int = 0,
    ) -> None:
        """`authorize(port, kind, topic)` is asked once per TOPIC definition on a client port, never per message.

        `plan_route(kind, topic)` decides where events of clients go besides the subscribers of this node,
        `forward_route(port, source_route, kind, topic)` where events go that came by a source route: each is asked at
        the first event of its definition and at the first one after `topics.forwarding_changed()` or after a peer's
        port was closed. They must not open, close, free or feed ports. What they raise is counted (`route_errors`),
        kept in `route_error`, and ends there.

        `parcel_routes(destination)` gives the paths to a name, [] for none: asked once for each destination and after
        `parcels_changed()`. Without it, or before `be_cell()`, this node is no cell and counts parcels as `unrouted`.
        `authorize(port, "c", destination)` is asked once for a client port and a destination of its parcels, and again
        after `permits_changed()`.

        `seed` keys the hashes of what strangers choose: random unless given. `memory_bytes` bounds all memory of the
        engine, the others what the ports of one account may hold: topic numbers, forwarding entries, bytes in queues.
        0 is no bound.
        """

    # --- ports
    def open_port(
        self,
        *,
        peer: bool = False,
        datagram: bool = False,
        level: int = 0,
        queue_bytes: int = 4 << 20,
        max_frame: int = 1 << 20,
        packing: int = 0,
        conflate: bool = False,
        retain: bool = False,
        credit: int = 0,
        loss: bool = True,
        max_topics: int = 65536,
        issuer: bytes = b"",
        epoch: int = 1,
        partner: int = -1,
        account: str = "",
    ) -> int:
        """A new port.

        peer: a link to another node (issuers are mapped, repeats dropped by window); else a client's port: `issuer`
        and `epoch` say who publishes its events.
        datagram: one STATUS/PROBE frame a datagram; packing defaults to 4 there. `partner` of a datagram port is the
        port of its
        control connection: STATUS arriving on either counts as arriving on the control port, and STATUS for the
        control port leaves by
        the datagram port.
        retain: EVENT frames are kept until the other side's engine has them, and sent again after `resume_port`.
        account: whom its topics, forwarding entries and (of clients) queued bytes are charged to, "" nobody.
        queue_bytes bounds each of the four classes. credit: window of EVENT bytes granted to a client (0 = no credits).
        """
    def close_port(self, port: int) -> None:
        """Nothing is sent or accepted any more; queued bytes are dropped and counted (`closed`)."""
    def free_port(self, port: int, limit: int = 10_000) -> bool:
        """Remove its table entries and subscriptions in slices; True when the number is free again. Call until True."""
    def park_port(self, port: int) -> None:
        """Its connection was lost but the port stays: what is retained waits; a half-received frame is forgotten."""
    def resume_port(self, port: int) -> None:
        """A new connection carries the port: definitions and retained frames are sent again."""
    def open_ports(self) -> list[int]:
        """Ports that take or keep something for their other side: connected ones and parked ones."""

    # --- bytes
    def feed(self, port: int, data: bytes | bytearray | memoryview) -> None:
        """Every frame in the bytes, whole or cut anywhere. ProtocolError closes the port for input and touches no
        other."""
    def feed_datagram(self, port: int, data: bytes | bytearray | memoryview) -> bool:
        """One datagram's frame; a bad one is counted and dropped (False), never fatal."""
    def peek(self, port: int) -> memoryview:
        """The next contiguous bytes to write (empty if none); valid until `consumed` or the next feed."""
    def consumed(self, port: int, count: int) -> None: ...
    def peek_datagrams(self, port: int, limit: int = 64) -> list[bytes]: ...
    def consumed_datagrams(self, port: int, count: int) -> None: ...
    def pending(self, port: int) -> int:
        """Bytes queued and not yet written, all classes."""
    def unacknowledged(self, port: int) -> int:
        """Bytes that the other side has not confirmed, queued ones too; of a parked port only what is sent again."""

    # --- control and probes
    def send(self, port: int, frame: bytes, priority: int = 0) -> bool:
        """Queue one whole frame (CONTROL, PROBE …) in that class 0..3; False if the queue is full."""
    @property
    def deferred(self) -> list[int]:
        """Ports whose bytes wait for `feed_deferred`: do not read them meanwhile."""
    def feed_deferred(self, ports: Container[int] | None = None, most: int = ...) -> list[tuple[int, ProtocolError]]:
        """Go on with bytes that wait, of these ports or of all that are not patient; those that turned out to be bad.

        At most so many questions to Python code are asked.
        """
    def be_patient(self, port: int, patient: bool) -> None:
        """Whether all questions of that port wait for a `feed_deferred` that names it; it is not so when opened."""
    def take_asked(self) -> list[tuple[int, int]]:
        """Ports whose bytes asked questions to Python code since the last call, and how many."""
    def take_control(self) -> list[tuple[int, bytes]]:
        """CONTROL payloads that arrived, with their ports, in order."""
    def refusing(self) -> list[int]:
        """Ports that have published what a rule refuses since it was taken last."""
    def take_refusals(self, port: int) -> list[tuple[str, bytes, int]]:
        """(kind, topic, events) that a rule refused to a port since the last call; an empty kind: topics beyond 64."""
    def take_echoes(self) -> list[tuple[int, int, int, int]]:
        """(port, token, mono_ns when it left, mono_ns at arrival) of ECHO frames with token != 0 that were not the
        engine's own; the third is 0 where another probe left by that port since."""
    def send_probe(self, port: int, token: int) -> bool:
        """Queue a PROBE with the engine's clock, most urgent class; its ECHO comes by take_echoes. False if full.
        One that waits to ride does not any more."""
    def ride_probe(self, port: int, token: int) -> bool:
        """As `send_probe`, but it leaves with whatever the port writes next: that costs neither end a system call or
        wakes it up. False while another waits or if the port is not open."""
    def riding(self, port: int) -> int:
        """The token of a probe that waits for something to be written, 0 if none does."""
    def send_train(self, port: int, token: int, size: int) -> bool:
        """Send `size` bytes (all frames together, 40 at least) as TRAIN frames whenever the port has nothing else to
        write; False while an older train is under way or if the port is not open."""
    def take_trained(self) -> list[tuple[int, int, int, int, int, int]]:
        """(port, token, bytes and ns of the second half, arrival of first and last byte by the other's clock)."""
    def heartbeat(self, port: int) -> bool:
        """Queue a heartbeat PROBE (token 0)."""
    def last_heard(self, port: int) -> int:
        """mono_ns of the last byte that arrived."""

    # --- limits of all ports
    def set_limits(self, *, memory_bytes: int, max_routed_topics: int, account_topics: int, account_bytes: int) -> None:
        """Use other limits from now on; what is held above one stays, and nothing more is given."""

    # --- rates and credits
    def limit_rate(self, port: int, events_per_s: float, burst: int) -> None:
        """Token bucket over STATUS records and all other frames of a client port; 0 = no limit."""
    def throttled(self) -> list[int]:
        """Ports above their rate, if any has sent something since the last call."""
    def throttled_ns(self, port: int) -> int:
        """How long the caller should stop reading this client port (0 = go on)."""

    # --- routes
    def defined_topics(self, port: int, start: int, limit: int) -> tuple[list[tuple[str, bytes]], int]:
        """(kind, topic) of so many topic numbers that a client may publish to; where to go on, 0: that was all."""
    def release_held(self) -> int:
        """Send on what waited long enough; how many events."""
    def held_ns(self) -> int:
        """Time until release_held has something to do (0 = now), -1 if nothing waits."""
    def take_unconfirmed(self, port: int, limit: int = 1000) -> list[Undelivered]:
        """Take up to `limit` events with a source route, not confirmed by that peer, out of its queues; [] for none.

        The port is given up: parked if it was open. Call it before close_port.
        """
    def take_undeliverable(self) -> list[Undelivered]:
        """Events that had no route to some of their destinations, with the source route to these as the
        decision gave it; 8 MiB are kept until they are taken."""
    def forget_undelivered(self, port: int = -1) -> None:
        """None of the events that a lost peer had not confirmed, or by default of those without a route, is kept any
        more: neighbours from which they came need not keep them either."""
    def drop_undelivered(self, event: Undelivered, waited: bool) -> None:
        """Count an event that will not be sent on: `drop_waited`, or `drop_no_route` if there was no room for it."""
    def reroute(self, event: Undelivered, next_hops: Iterable[tuple[int, bytes]]) -> int:
        """Queue such an event for other next hops under its own identity; for how many.
        This node delivered it when it first came."""

    # --- parcels
    def be_cell(self, id: bytes) -> None:
        """This node is the cell with that id (8 bytes) from now on."""
    def set_cell(self, id: bytes, port: int) -> None:
        """By which port a neighbouring cell is reached, -1: it is none any more. A port that is parked or closed
        reaches none: say it again when it is open."""
    def own_name(self, name: bytes, port: int) -> None:
        """Parcels to that name are for the client of that port, which may send from it. RefusedError if another
        port has it or this one has too many. A port that is parked or closed has none any more."""
    def disown_name(self, name: bytes, port: int) -> None: ...
    def parcels_changed(self, destination: bytes = b"") -> None:
        """Ask for the paths to that name, or to all, again with its next parcel; what was learned of a path with the
        same hops is kept."""
    def permits_changed(self) -> None:
        """Ask `authorize` again about destinations of parcels; a flow that it forbids ends, and its client is told."""
    def name_placed(self, name: bytes) -> None:
        """A cell has got that name: paths to it that are excluded may be used again, and are asked for again."""
    def parcels_tick(self) -> None:
        """What needs time and no traffic: excludes silent paths, corrects shares, gives up on flows without a path."""
    def parcels_next(self) -> int:
        """Time until parcels_tick has something to do (0 = now), -1 if no flow begins here. Ask after feeding."""
    def take_parcels(self) -> list[tuple[int, bytes]]:
        """(arrival port, payload) of PARCEL frames with the flag MULTICAST; a client's come from a name that it has to
        a prefix that it may send to. `attention` says that there are some."""
    def take_broken(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        """(destination, hops) of paths that returned a parcel, or were silent, and are excluded for a while."""
    def parcel_rows(self) -> list[ParcelRow]: ...
    def flow_rows(self) -> list[FlowRow]: ...

    # --- subscriptions that touch queues
    def watch(
        self, port: int, variable: int, path: int, intervals: list[int], priorities: list[int], modes: int
    ) -> int:
        """status.setup_path, and the last value goes to that port at once."""

    # --- counters
    def port_counters(self, port: int) -> dict[str, int]:
        """Exact: bytes, frames, status, events in and out; filtered, conflated, drops by reason."""
    def traffic(self, port: int) -> int:
        """How many status records and events have come and gone there."""
    def counters(self) -> dict[str, int]:
        """Sums over all ports, ever."""
    def address_drops(self, limit: int = 0) -> list[tuple[str, int | str, str, int]]:
        """Exact drops by address: (`variable` or `topic`, id or name, reason, count), largest first."""
    def memory_bytes(self) -> int: ...
