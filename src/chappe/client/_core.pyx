"""The protocol of a client, without a socket: frames in, messages out; calls in, frames out.

`feed_bytes` parses every frame of a buffer once and copies into the queues of the subscriptions and watches concerned.
The owner is notified by callbacks, never more than once a buffer except for CONTROL.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from chappe.client._directory cimport Directory, Slot
from chappe.client._inbox cimport IssuerEntry, Subscription
from chappe.client._outbox cimport Outbox, get32, get64
from chappe.client._plain cimport plain_run
from chappe.client._status cimport StatusEvent, StatusStream, Watch
from chappe.client._watches cimport WatchTable

from chappe.errors import ProtocolError

cdef enum:
    STATUS = 0x01
    EVENT = 0x02
    PARCEL = 0x03
    PROBE = 0x04
    CONTROL = 0x05
    TOPIC = 0x12
    ECHO = 0x14
    LOSS = 0x15
    ISSUER = 0x22
    CREDIT = 0x25
    DENIAL = 0x35
    PARCEL_CREDIT = 0x45
    EXT = 0x08
    RESENT = 0x20
    FLOOD_LIMIT = 65536      # flooded variables that a client distinguishes


cdef class ClientCore(Sender):
    """One connection of a client, over all its reconnections; port 0 carries it."""

    def __init__(self, *, queue_bytes=8 << 20, status_bytes=1 << 20, max_frame=0xFFFFFF):
        if queue_bytes < 1024 or status_bytes < 1024:
            raise ValueError(f"queues hold at least 1024 bytes, not {queue_bytes} and {status_bytes}")
        self.outbox = Outbox(queue_bytes, status_bytes)
        self.watches = WatchTable()
        self.floods = WatchTable()
        self.unnamed = []
        self.live_clock = True
        self.max_frame = max_frame
        self.directory = Directory()
        self.touched = []
        self.pushes = []

    def __dealloc__(self):
        PyMem_RawFree(self.rest)

    # --- connection

    def connected(self, *, max_payload=1 << 20, max_topics=65536, credit=0, hold=False):
        """The handshake of a new connection is over: definitions and events that are kept go out (again).

        `hold`: events wait until `release_events`, so that the answers to them find their subscriptions.
        """
        self.close()
        self.outbox.held = hold
        self.directory.forget_numbers()
        self.outbox.connected(max_payload, max_topics, credit)
        self.outbox.parcels.open(self.monotonic())
        self.mark()

    def release_events(self):
        """Send the events that `connected` held back."""
        self.outbox.held = False
        self.mark()

    def close(self):
        """The connection is gone: events wait for the next one, the rest is forgotten."""
        self.outbox.disconnected()
        self.outbox.parcels.close()
        self.datagrams_open = False
        self.rest_size = 0
        self.lost_status_before += self.lost_status
        self.lost_events_before += self.lost_events
        self.lost_status = self.lost_events = 0
        self.refused_before_by_rule += self.refused_by_rule
        self.refused_before_for_room += self.refused_for_room
        self.refused_by_rule = self.refused_for_room = 0

    @property
    def ready(self):
        """True between `connected` and `close`."""
        return self.outbox.ready

    # --- subscriptions

    def add_subscription(self, Subscription subscription not None):
        """Deliver what matches to this queue from now on."""
        self.directory.add(subscription)

    def remove_subscription(self, Subscription subscription not None):
        """Deliver nothing more to this queue; True if no other one here has the same pattern and group."""
        return self.directory.remove(subscription)

    # --- bytes in

    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        cdef unsigned char* place
        if size < 4 or self.needed(data, size) != size:
            raise ProtocolError(f"a datagram of {size} bytes is not one whole frame")
        self.datagram_heard_ns = self.clocks.mono_ns
        self.in_bytes += size
        self.in_datagrams += 1
        try:
            if data[0] == STATUS:
                self.status(data + 4, size - 4)
            elif data[0] == PROBE:
                place = self.outbox.datagram(ECHO, size - 4)
                if place != NULL:
                    memcpy(place, data + 4, size - 4)
                    self.mark()
            elif data[0] == ECHO:
                if self.datagrams_open and not self.outbox.separate:
                    self.outbox.separate = True
                    self.progress = True
            else:
                raise ProtocolError(f"a frame of the kind 0x{data[0]:02x} does not come by datagram")
        finally:
            self.finish()
        return 0

    def feed(self, const unsigned char[::1] data not None):
        """Every frame in the bytes, whole or cut anywhere. ProtocolError: the connection must be closed."""
        if data.shape[0]:
            self.feed_bytes(0, <unsigned char*> &data[0], data.shape[0])

    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        self.heard_ns = self.clocks.mono_ns
        self.in_bytes += size
        try:
            self.parse(data, size)
        finally:
            self.finish()
        return 0

    cdef int parse(self, unsigned char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t need, part
        while size > 0:
            if not self.outbox.ready:
                return 0  # closed by a callback: the rest of the buffer belongs to nobody
            if self.rest_size:
                need = self.needed(self.rest, self.rest_size)
                if self.rest_size < need:
                    part = min(need - self.rest_size, size)
                    self.keep(data, part)
                    data += part
                    size -= part
                    if self.rest_size < need:
                        return 0
                    need = self.needed(self.rest, self.rest_size)
                    if self.rest_size < need:
                        continue
                self.rest_size = 0
                self.unit(self.rest, need)
                continue
            need = self.needed(data, size)
            if size < need:
                return self.keep(data, size)
            self.unit(data, need)
            data += need
            size -= need
        return 0

    cdef Py_ssize_t needed(self, const unsigned char* data, Py_ssize_t size) except -1:
        """Bytes of the unit that begins here, as far as it can be known: a frame or its header."""
        cdef Py_ssize_t length
        cdef int kind = data[0]
        if not (kind == STATUS or kind == EVENT or kind == CONTROL or kind == TOPIC or kind == ISSUER or kind == PROBE
                or kind == ECHO or kind == LOSS or kind == CREDIT or kind == DENIAL
                or kind == PARCEL or kind == PARCEL_CREDIT):
            raise ProtocolError(f"the node sent a frame of the unknown kind 0x{kind:02x}")
        if size < 4:
            return 4
        length = (<Py_ssize_t> data[1] << 16) | (<Py_ssize_t> data[2] << 8) | data[3]
        if length > self.max_frame:
            raise ProtocolError(f"the node sent a frame of {length} bytes, the limit is {self.max_frame}")
        return 4 + length

    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t room = self.rest_size + size
        cdef unsigned char* grown
        if room > self.rest_room:
            room = max(room, 2 * self.rest_room)
            grown = <unsigned char*> PyMem_RawRealloc(self.rest, room)
            if grown == NULL:
                raise MemoryError
            self.rest = grown
            self.rest_room = room
        memcpy(self.rest + self.rest_size, data, size)
        self.rest_size += size
        return 0

    cdef int unit(self, const unsigned char* data, Py_ssize_t size) except -1:
        cdef int kind = data[0]
        if kind == EVENT:
            return self.event(data + 4, size - 4)
        if kind == STATUS:
            return self.status(data + 4, size - 4)
        if kind == PARCEL:
            return self.outbox.parcels.parcel(data + 4, size - 4, self.clocks.mono_ns)
        return self.rare(kind, data + 4, size - 4)

    cdef int event(self, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef uint32_t number, issuer_number, sequence
        cdef uint8_t flags
        cdef Py_ssize_t extension = 0, start = 12
        cdef Slot slot
        cdef IssuerEntry issuer
        cdef Subscription subscription
        if size < 12:
            raise ProtocolError(f"an EVENT has at least 12 bytes, this one {size}")
        number = get32(payload)
        flags = payload[4]
        issuer_number = (<uint32_t> payload[5] << 16) | (<uint32_t> payload[6] << 8) | payload[7]
        sequence = get32(payload + 8)
        if flags & EXT:
            extension = (<Py_ssize_t> payload[12] << 8) | payload[13] if size >= 14 else 65536
            start = 14
            if 14 + extension > size:
                raise ProtocolError("the extension of an EVENT reaches past its end")
        slot = self.directory.slot(number)
        issuer = self.directory.issuer(issuer_number)
        if issuer.repeated(slot.entry.group, sequence, flags & RESENT):
            self.repeats += 1
            return 0
        self.in_events += 1
        if slot.generation != self.directory.generation:
            self.directory.match(slot)
        if not slot.subscriptions:
            self.unwanted += 1
            return 0
        if slot.entry.group:
            slot.turn = (slot.turn + 1) % len(slot.subscriptions)
            chosen = slot.subscriptions[slot.turn:slot.turn + 1]
        else:
            chosen = slot.subscriptions
        for subscription in <list> chosen:
            subscription.offer(slot.entry, issuer, sequence, flags, payload + start, extension,
                               payload + start + extension, size - start - extension)
            if not subscription.touched:
                subscription.touched = True
                self.touched.append(subscription)
        return 0

    cdef int status(self, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef const unsigned char* end = payload + size
        cdef PyObject* found
        cdef Watch watch
        cdef Py_ssize_t options
        cdef bytes blocks
        cdef int64_t created
        cdef uint64_t bits
        while payload < end:
            size = plain_run(self.watches.watches, self.watches.keys, self.watches.room, payload, end - payload,
                             self.clocks.wall_ns, self.touched)
            payload += size
            self.in_status += size // 24
            if payload >= end:
                break
            if end - payload < 24:
                raise ProtocolError("a status record reaches past the end of its frame")
            options = payload[12]
            if end - payload < 24 + 24 * options:
                raise ProtocolError("the option blocks of a status record reach past the end of its frame")
            self.in_status += 1
            found = self.watches.find(get32(payload + 8))
            if found == NULL and self.flood is not None:
                found = self.stranger(get32(payload + 8))
            if found == NULL:
                self.unwanted += 1
            else:
                blocks = PyBytes_FromStringAndSize(<char*> payload + 24, 24 * options) if options else None
                created = <int64_t> get64(payload)
                bits = get64(payload + 16)
                watch = <Watch> found
                while watch is not None:
                    watch.accept(created, self.clocks.wall_ns, bits, blocks, self.pushes)
                    if not watch.stream.touched:
                        watch.stream.touched = True
                        self.touched.append(watch.stream)
                    watch = watch.sibling
            payload += 24 + 24 * options
        return 0

    cdef PyObject* stranger(self, uint32_t number) except? NULL:
        """The watch of a flooded variable, made when it comes for the first time."""
        cdef PyObject* found = self.floods.find(number)
        cdef Watch watch
        if found != NULL or len(self.floods) >= FLOOD_LIMIT:
            return found
        watch = Watch("", f"#{number}", stream=self.flood)
        watch.admit(number, "bytes", 0, 1, 1)
        self.floods.add([watch])
        if self.on_unnamed is not None:
            self.flood.unnamed += 1
            self.unnamed.append(watch)
        return self.floods.find(number)

    cdef int rare(self, int kind, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef bytes content = PyBytes_FromStringAndSize(<char*> payload, size)
        if kind == CONTROL:
            self.push()  # what came before it may have another meaning after it: a mode, a withdrawal
            if self.on_control is not None:
                self.on_control(content)
        elif kind == TOPIC:
            self.directory.define_topic(content)
        elif kind == ISSUER:
            self.directory.define_issuer(content)
        elif kind == PROBE:
            self.outbox.control_frame(ECHO, payload, size)
            self.mark()
        elif kind == ECHO:
            if size < 8:
                raise ProtocolError(f"an ECHO has at least 8 bytes, this one {size}")
            if self.outbox.echoed(get64(payload)):
                self.progress = True
                if self.outbox.has_work():
                    self.mark()
        elif kind == LOSS:
            if size != 16:
                raise ProtocolError(f"a LOSS has 16 bytes, this one {size}")
            self.lost_status = get64(payload)
            self.lost_events = get64(payload + 8)
            self.progress = True
        elif kind == DENIAL:
            if size != 16:
                raise ProtocolError(f"a DENIAL has 16 bytes, this one {size}")
            self.refused_by_rule = get64(payload)
            self.refused_for_room = get64(payload + 8)
            self.progress = True
        elif kind == CREDIT:
            if size != 8:
                raise ProtocolError(f"a CREDIT has 8 bytes, this one {size}")
            self.outbox.has_credit = True
            self.outbox.credit = get64(payload)
            self.mark()
        elif kind == PARCEL_CREDIT:
            self.outbox.parcels.grant(payload, size)
        return 0

    cdef int push(self) except -1:
        """Call the callbacks of watches with the values that have come."""
        cdef StatusEvent event
        if not self.pushes:
            return 0
        pushes, self.pushes = self.pushes, []
        for event in pushes:
            try:
                event.watch.pushed(event)
            except Exception as error:
                if self.on_failure is None:
                    raise
                self.on_failure(error)
        return 0

    cdef int finish(self) except -1:
        """Wake who waits, once a buffer; then the callbacks of the user, which may call anything."""
        if self.outbox.parcels.has_work:
            self.mark()
        self.outbox.parcels.notify()
        cdef Subscription subscription
        cdef StatusStream stream
        if self.touched:
            touched, self.touched = self.touched, []
            for queue in touched:
                if isinstance(queue, Subscription):
                    subscription = <Subscription> queue
                    subscription.touched = False
                    notify = subscription.holding or (subscription.dropped and not subscription.drop_reported)
                    subscription.drop_reported = subscription.dropped > 0
                    if subscription.count >= subscription.wake_at:
                        subscription.wake()
                else:
                    stream = <StatusStream> queue
                    stream.touched = False
                    notify = stream.holding or (stream.dropped and not stream.drop_reported)
                    stream.drop_reported = stream.dropped > 0
                    if stream.size() >= stream.wake_at:
                        stream.wake()
                if notify and self.on_full is not None:
                    self.on_full(queue)
        self.push()
        if self.unnamed:
            unnamed, self.unnamed = self.unnamed, []
            self.on_unnamed(unnamed)
        if self.progress:
            self.progress = False
            if self.on_progress is not None:
                self.on_progress()
        return 0

    # --- counters

    @property
    def losses(self):
        """(status records, events) that nodes dropped for this client, over all connections."""
        return self.lost_status_before + self.lost_status, self.lost_events_before + self.lost_events

    @property
    def refused(self):
        """Events of this client that nodes did not take, over all connections: (by rules, for lack of numbers)."""
        return (self.refused_before_by_rule + self.refused_by_rule,
                self.refused_before_for_room + self.refused_for_room)

    def refuse(self, topic):
        """The node does not take events to this topic: it is asked again when one is published there again."""
        self.outbox.refuse(topic)

    def counters(self):
        """All that was counted, by name; `allocations` are of the outgoing side: none in steady state (GS-037)."""
        cdef Outbox outbox = self.outbox
        cdef int64_t queues = outbox.control.allocations + outbox.status.allocations + outbox.events.allocations
        lost_status, lost_events = self.losses
        return {
            "in_bytes": self.in_bytes, "in_events": self.in_events, "in_status": self.in_status,
            "in_datagrams": self.in_datagrams,
            "repeats": self.repeats, "unwanted": self.unwanted, "lost_status": lost_status, "lost_events": lost_events,
            "refused_by_rule": self.refused[0], "refused_for_room": self.refused[1],
            "out_bytes": outbox.out_bytes, "published": outbox.published, "status_published": outbox.status_published,
            "refused_full": outbox.refused_full, "refused_status": outbox.refused_status, "resent": outbox.resent,
            **outbox.parcels.counters(),
            "allocations": outbox.own_allocations + queues,
        }
