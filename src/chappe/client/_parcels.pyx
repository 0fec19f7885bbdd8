"""The flows of one client, without a socket and without a clock.

A flow is kept open between messages and forgotten when it was idle for five minutes; its receiver remembers for longer
where it ended, so that nothing comes twice. What all flows hold together is bounded.
"""

from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy

from chappe.cells._arrivals cimport Incoming, ReceiveFlow
from chappe.cells._flow cimport SendFlow
from chappe.cells._frames cimport ACK, BEGINNING, FIRST, HEAD, LAST, MULTICAST, OVERHEAD, put_head
from chappe.cells._outgoing cimport Outgoing
from chappe.client._segments cimport SegmentQueue
from chappe.engine._bytes cimport get32, get64

from chappe.cells._arrivals import answer
from chappe.cells._frames import encode_names
from chappe.errors import ProtocolError, QueueFullError

cdef enum:
    VERSION = 2
    RESET = 1
    REFUSED = 2
    MOST_SENDING = 64        # flows from one client: a node takes as many
    MOST_RECEIVING = 256     # flows to one client at a time
    MOST_PLACES = 4096       # flows that are remembered without being there
    MOST_ANSWERS = 256
    LOOSE_BYTES = 1048576    # of multicasts that were not written yet
    BOX = 1024               # multicasts that wait in a box
    UNHEARD = 4096           # parcels that a flow can send at most before it has heard anything

cdef int64_t BUDGET = 64 << 20                   # bytes that all flows hold for readers
cdef int64_t MOST_ROOM = 8 << 20                 # of one flow
cdef int64_t SENDING_IDLE_NS = 300_000_000_000
cdef int64_t RECEIVING_IDLE_NS = 600_000_000_000
cdef int64_t STRANGE_NS = 1_000_000_000          # a flow whose beginning does not come is of before this client
cdef int64_t NEVER_NS = 1 << 62

NEVER = NEVER_NS
MULTICAST_BYTES = 32768


cdef class Parcels:
    """What a client sends to names and gets for its own; `draw()` gives the numbers of its flows."""

    def __init__(self, draw):
        self.draw = draw
        self.boxes = {}
        self.sending = {}
        self.by_names = {}
        self.receiving = {}
        self.places = OrderedDict()
        self.strangers = OrderedDict()
        self.eager = []
        self.due = []
        self.later = []
        self.answers = []
        self.loose = []
        self.arrived = []
        self.grown = []
        self.finished = []

    # --- messages

    def open_box(self, str name not None, box):
        """Messages to that name are of that box from now on."""
        self.boxes[name] = box

    def close_box(self, str name not None, failure):
        """Nobody has that name here any more; what was on its way from it or to it ends."""
        cdef SendFlow flow
        cdef ReceiveFlow receiving
        self.boxes.pop(name, None)
        for flow in list(self.sending.values()):
            if flow.source == name:
                self.finished += flow.fail(failure)
                self.settle(flow, flow.id)
        for receiving in list(self.receiving.values()):
            if receiving.destination == name:
                self.held -= receiving.held
                receiving.end(failure)
                del self.receiving[receiving.id]
        self.notify()

    def send(self, str source not None, str destination not None, Outgoing message not None, int64_t now_ns):
        """Queue a message; the flow that takes it. QueueFullError if there are too many flows at once."""
        cdef SendFlow flow = self.by_names.get((source, destination))
        if flow is None:
            if len(self.sending) >= MOST_SENDING:
                self.forget_oldest()
            flow = SendFlow(source, destination, self.draw)
            flow.send(message)
            if not self.connected:
                flow.pause()
            self.by_names[source, destination] = flow
            self.sending[flow.id] = flow
        else:
            flow.send(message)
        self.wake(flow)
        return flow

    def more(self, SendFlow flow not None):
        """A message of that flow has more bytes, or was cancelled."""
        self.wake(flow)

    def refuse(self, str destination not None, failure):
        """Nothing may be sent to that name."""
        cdef SendFlow flow
        for flow in list(self.sending.values()):
            if flow.destination == destination:
                self.finished += flow.fail(failure)
                self.settle(flow, flow.id)
        self.notify()

    def cast(self, str source not None, str destination not None, bytes body not None):
        """Queue a multicast; False if there is no room for it, or no connection."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body), head
        if size > MULTICAST_BYTES:
            raise ValueError(f"a multicast has at most {MULTICAST_BYTES} bytes, not {size}: send it to each name")
        names, to_size = encode_names(source, destination)
        head = HEAD + len(names)
        if not self.connected or self.loose_bytes + head + size > LOOSE_BYTES:
            return False
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, head + size)
        cdef unsigned char* place = <unsigned char*> PyBytes_AS_STRING(frame)
        put_head(place, head - 4 + size, FIRST | LAST | MULTICAST, names, to_size, self.draw(), 0)
        memcpy(place + head, PyBytes_AS_STRING(body), size)
        self.loose.append(frame)
        self.loose_bytes += head + size
        return True

    def take(self):
        """(messages that came, each with its box; those of before that have more; those of ours that are over)."""
        arrived, self.arrived = self.arrived, []
        grown, self.grown = self.grown, []
        finished, self.finished = self.finished, []
        return arrived, grown, finished

    def notify(self):
        """Say that there is something to take, if there is."""
        if (self.changed or self.arrived or self.grown or self.finished) and self.on_change is not None:
            self.changed = False
            self.on_change()

    # --- parcels in

    cdef int parcel(self, const unsigned char* payload, Py_ssize_t size, int64_t now_ns) except -1:
        """One PARCEL frame; what is wrong with it is counted: it may come from anybody."""
        cdef int flags
        cdef Py_ssize_t to, by, start
        cdef str source, destination
        self.parcels_in += 1
        if size < 20 or payload[0] != VERSION:
            self.invalid += 1
            return 0
        flags, to, by = payload[1], payload[5], payload[6]
        start = 20 + 8 * <Py_ssize_t> payload[4]
        if not to or not by or start + to + by > size:
            self.invalid += 1
            return 0
        try:
            destination = PyUnicode_DecodeUTF8(<const char*> payload + start, to, NULL)
            source = PyUnicode_DecodeUTF8(<const char*> payload + start + to, by, NULL)
            start += to + by
            if flags & MULTICAST:
                self.multicast(source, destination,
                               PyBytes_FromStringAndSize(<const char*> payload + start, size - start))
            elif flags & ACK:
                self.acknowledgement(get64(payload + 8), source,
                                     PyBytes_FromStringAndSize(<const char*> payload + start, size - start), now_ns)
            else:
                self.data(get64(payload + 8), get32(payload + 16), flags & (FIRST | LAST), source, destination,
                          payload + start, size - start, now_ns)
        except (ProtocolError, UnicodeDecodeError):
            self.invalid += 1
        return 0

    cdef int data(self, uint64_t number, int64_t sequence, int flags, str source, str destination,
                  const unsigned char* body, Py_ssize_t size, int64_t now_ns) except -1:
        cdef ReceiveFlow flow
        cdef int64_t before
        cdef bint crowded
        found = self.receiving.get(number)
        if found is None:
            found = self.open_flow(number, sequence, source, destination)
            if found is None:
                return 0
        flow = <ReceiveFlow> found
        if flow.source != source or flow.destination != destination:
            self.invalid += 1
            return 0
        before = flow.held
        crowded = self.held + size + OVERHEAD > (BUDGET // 2 if sequence > flow.following else BUDGET)
        if not flow.arrive(sequence, flags, body, size, now_ns, crowded):
            self.duplicates += 1
        self.held += flow.held - before
        self.crowded += crowded
        if flow.published or flow.grown:
            published, grown = flow.take_messages()
            box = self.boxes.get(destination)
            for message in published:
                self.arrived.append((box, message))
            self.grown += grown
        if flow.ack_at_ns <= now_ns:
            self.say(flow)
        elif not flow.waiting:
            flow.waiting = True
            self.later.append(flow)
            self.changed = True
        return 0

    cdef ReceiveFlow open_flow(self, uint64_t number, int64_t sequence, str source, str destination):
        """A flow that begins or goes on here; None: it does not, and its sender is told."""
        cdef ReceiveFlow flow, other
        flags = self.strangers.get(number)
        if flags is None:
            if destination not in self.boxes:
                flags = REFUSED
            elif number not in self.places and sequence >= UNHEARD:
                flags = RESET
            elif len(self.receiving) >= MOST_RECEIVING and not self.make_room():
                self.crowded += 1
                return None
        if flags is not None:
            self.remember(self.strangers, number, flags)
            if len(self.answers) < MOST_ANSWERS:
                text = f"nobody here has the name {destination!r}" if flags == REFUSED else ""
                self.answers.append(answer(number, destination, source, flags, text))
            self.unwanted += 1
            return None
        flow = ReceiveFlow(number, source, destination, limit=self.share(len(self.receiving) + 1))
        place = self.places.pop(number, None)
        if place is not None:
            flow.go_on(*place)
        flow.on_room = self.has_room
        self.receiving[number] = flow
        for other in self.receiving.values():
            other.resize(flow.limit)
        self.changed = True
        return flow

    def share(self, Py_ssize_t flows):
        """The room of each of so many flows."""
        return max(BEGINNING, min(MOST_ROOM, BUDGET // flows))

    def has_room(self, ReceiveFlow flow not None):
        """A reader has taken something that the sender should know of."""
        self.say(flow)

    def took(self, Incoming message not None, bint skip=False):
        """The pieces of a message that were not taken yet; room for others. skip: the rest is not wanted."""
        cdef int64_t before
        if message.flow is None:
            return message.take()
        before = message.flow.held
        chunks = message.take()
        if skip:
            message.skip()
        if message.flow.id in self.receiving:
            self.held -= before - message.flow.held
        return chunks

    cdef int say(self, ReceiveFlow flow) except -1:
        if not flow.queued:
            flow.queued = True
            self.due.append(flow)
        return 0

    cdef int multicast(self, str source, str prefix, bytes body) except -1:
        start = prefix[:len(prefix) - 1] if prefix.endswith("*") else prefix
        boxes = {id(box): box for name, box in self.boxes.items() if name.startswith(start) and name != source}
        for box in boxes.values():
            if len(box) < BOX:
                self.arrived.append((box, Incoming(None, source, prefix, body)))
            else:
                self.crowded += 1
        return 0

    cdef int acknowledgement(self, uint64_t number, str source, bytes body, int64_t now_ns) except -1:
        cdef SendFlow flow = self.sending.get(number)
        self.acknowledged += 1
        if flow is None or flow.destination != source:
            self.unwanted += 1
            return 0
        flow.acknowledge(body, now_ns)
        return self.settle(flow, number)

    cdef int settle(self, SendFlow flow, uint64_t number) except -1:
        """Look at what has become of a flow that had that number before."""
        self.finished += flow.take_finished()
        self.changed = True
        if flow.failure is not None or flow.id != number:
            self.sending.pop(number, None)
        if flow.failure is not None:
            if self.by_names.get((flow.source, flow.destination)) is flow:
                del self.by_names[flow.source, flow.destination]
            self.resent += flow.resent
            return 0
        if flow.id != number:
            self.sending[flow.id] = flow
        return self.wake(flow)

    cdef int grant(self, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef SendFlow flow
        if size != 16:
            raise ProtocolError(f"a PARCEL_CREDIT has 16 bytes, this one {size}")
        flow = self.sending.get(get64(payload))
        if flow is not None:
            flow.grant(get64(payload + 8))
            self.wake(flow)
        return 0

    cdef int wake(self, SendFlow flow) except -1:
        if not flow.queued and flow.failure is None:
            flow.queued = True
            self.eager.append(flow)
            self.changed = True
        return 0

    # --- parcels out

    @property
    def has_work(self):
        """Whether frames may be waiting to leave."""
        return self.connected and (len(self.eager) or len(self.due) or len(self.answers) or len(self.loose)) > 0

    cdef int put(self, SegmentQueue queue, bytes frame) except -1:
        memcpy(queue.reserve(PyBytes_GET_SIZE(frame)), PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        self.parcels_out += 1
        return 0

    cdef int fill(self, SegmentQueue queue, Py_ssize_t bound, int64_t now_ns) noexcept:
        """Put frames into the queue until it holds so many bytes: acknowledgements first."""
        if not self.connected:
            return 0
        try:
            self.fill_all(queue, bound, now_ns)
        except Exception as error:
            self.failure = error
        return 0

    cdef int fill_all(self, SegmentQueue queue, Py_ssize_t bound, int64_t now_ns) except -1:
        cdef ReceiveFlow receiving
        cdef SendFlow flow
        cdef Py_ssize_t size, at = 0
        cdef uint64_t number
        if self.due:
            due, self.due = self.due, []
            for receiving in due:
                receiving.queued = False
                if receiving.ack_at_ns != NEVER_NS:
                    self.put(queue, receiving.acknowledge(now_ns))
        if self.answers:
            answers, self.answers = self.answers, []
            for frame in answers:
                self.put(queue, frame)
        while self.eager and queue.head - queue.tail < bound:
            if at >= len(self.eager):
                at = 0
            flow = <SendFlow> self.eager[at]
            number = flow.id
            size = flow.prepare(now_ns)
            if flow.id != number:
                self.sending.pop(number, None)
                self.sending[flow.id] = flow
            if size == 0:
                flow.queued = False
                del self.eager[at]
                continue
            flow.write(queue.reserve(size), now_ns)
            self.parcels_out += 1
            at += 1
        while self.loose and queue.head - queue.tail < bound:
            frame = self.loose.pop(0)
            self.loose_bytes -= len(frame)
            self.put(queue, frame)
        return 0

    # --- connections and time

    def open(self, int64_t now_ns):
        """There is a connection: flows go on where they were."""
        cdef SendFlow flow
        self.connected = True
        for flow in self.sending.values():
            flow.resume(now_ns)
            self.wake(flow)

    def close(self):
        """The connection is gone."""
        cdef SendFlow flow
        self.connected = False
        self.loose.clear()
        self.loose_bytes = 0
        for flow in self.sending.values():
            flow.pause()

    def end(self, failure):
        """The client was closed: nothing more comes or goes."""
        cdef SendFlow flow
        cdef ReceiveFlow receiving
        for flow in list(self.sending.values()):
            self.finished += flow.fail(failure)
        for receiving in list(self.receiving.values()):
            receiving.end(failure)
        self.sending.clear()
        self.by_names.clear()
        self.receiving.clear()
        self.eager.clear()
        self.due.clear()
        self.later.clear()
        self.held = 0
        self.notify()

    def tick(self, int64_t now_ns):
        """What time brings; call it at `next_tick`."""
        cdef SendFlow flow
        cdef ReceiveFlow receiving
        cdef uint64_t number
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        if self.later:
            later, self.later = self.later, []
            for receiving in later:
                if receiving.ack_at_ns <= now_ns:
                    receiving.waiting = False
                    self.say(receiving)
                elif receiving.ack_at_ns == NEVER_NS:
                    receiving.waiting = False
                else:
                    self.later.append(receiving)
        for flow in list(self.sending.values()):
            number = flow.id
            flow.tick(now_ns)
            self.settle(flow, number)
            if flow.idle and flow.failure is None and now_ns - flow.active_ns >= SENDING_IDLE_NS:
                self.forget(flow)
        for receiving in list(self.receiving.values()):
            if not receiving.begun and now_ns - receiving.opened_ns >= STRANGE_NS:
                self.held -= receiving.held
                del self.receiving[receiving.id]
                self.remember(self.strangers, receiving.id, RESET)
                self.answers.append(answer(receiving.id, receiving.destination, receiving.source, RESET))
            elif receiving.idle and now_ns - receiving.active_ns >= RECEIVING_IDLE_NS:
                del self.receiving[receiving.id]
        self.changed = False
        if self.arrived or self.grown or self.finished:
            self.notify()

    def next_tick(self, int64_t now_ns):
        """When to call `tick`; NEVER if nothing waits for it."""
        cdef int64_t due = NEVER_NS
        cdef SendFlow flow
        cdef ReceiveFlow receiving
        for receiving in self.later:
            due = min(due, receiving.ack_at_ns)
        if self.connected:
            for flow in self.sending.values():
                due = min(due, flow.next_tick(now_ns))
        for receiving in self.receiving.values():
            if not receiving.begun:
                due = min(due, now_ns + STRANGE_NS // 4)
        if due == NEVER_NS and (self.sending or self.receiving):
            due = now_ns + SENDING_IDLE_NS // 10
        return due

    # --- what is forgotten

    def forget_oldest(self):
        """Room for another flow; QueueFullError if all are in use."""
        cdef SendFlow flow
        idle = [flow for flow in self.sending.values() if flow.idle]
        if not idle:
            raise QueueFullError(f"{MOST_SENDING} flows are under way, the most of one client: wait until one is over")
        self.forget(min(idle, key=lambda flow: flow.active_ns))

    def forget(self, SendFlow flow not None):
        """A flow that is idle ends; the next message begins another one."""
        self.sending.pop(flow.id, None)
        self.by_names.pop((flow.source, flow.destination), None)
        self.resent += flow.resent

    def make_room(self):
        """Whether the least active of the flows that are idle could be forgotten, but for where it goes on."""
        cdef ReceiveFlow flow
        idle = [flow for flow in self.receiving.values() if flow.idle and flow.begun]
        if not idle:
            return False
        oldest = min(idle, key=lambda flow: flow.active_ns)
        del self.receiving[oldest.id]
        self.remember(self.places, oldest.id, oldest.place)
        return True

    def remember(self, table, number, what):
        """Keep one more, and the newest only."""
        table[number] = what
        table.move_to_end(number)
        if len(table) > MOST_PLACES:
            table.popitem(last=False)

    # --- what is shown

    def flows(self):
        """A row for each flow that this client sends."""
        cdef SendFlow flow
        return [{"source": flow.source, "destination": flow.destination, "flow": f"{flow.id:016x}",
                 "unconfirmed": flow.unconfirmed, "resent": flow.resent, "renewed": flow.renewed}
                for flow in self.sending.values()]

    def counters(self):
        """All that was counted, by name."""
        cdef SendFlow flow
        resent = self.resent
        for flow in self.sending.values():
            resent += flow.resent
        return {
            "parcels_in": self.parcels_in, "parcels_out": self.parcels_out, "parcels_resent": resent,
            "parcels_duplicate": self.duplicates, "parcels_invalid": self.invalid, "parcels_unwanted": self.unwanted,
            "parcels_crowded": self.crowded,
        }
