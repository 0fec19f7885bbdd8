"""What a client has to send: control, status, events and parcels, each in order.

Events stay in their segments until the ECHO of a later PROBE says that the node has them; after a reconnection they
are sent again under the same sequence. Bytes are handed to the socket as a plan: control, status, events up to the
credit, then a PROBE if one is due, and parcels once nothing else waits. A plan is written completely before the next
is made, so frames never interleave.

Any thread may publish while another one writes or connects: between taking a topic's number and the last byte of an
event no Python code runs, and so no other thread.
"""

from secrets import randbits

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_FromObject
from libc.string cimport memcpy, memmove

from chappe.client._parcels cimport Parcels
from chappe.client._segments cimport bytes_of
from chappe.client.topics import Long, encode_topic
from chappe.wire.addresses import Address

cdef enum:
    STATUS = 0x01
    EVENT = 0x02
    TOPIC = 0x12
    PROBE = 0x04
    EXT = 0x08
    RESENT = 0x20
    STAMP = 13               # an extension that says when the event was made, and nothing else
    STATUS_FRAME = 61440     # payload of one STATUS frame: stays inside a segment


def _number():
    """Of a flow: nobody guesses it."""
    return randbits(64)


cdef object key_of(object topic):
    """What a topic is found by: of a type whose hash and comparison run no Python code. TypeError, ValueError."""
    if isinstance(topic, str):
        return PyUnicode_FromObject(topic)
    if isinstance(topic, Long):
        return (int.__index__(topic.value),)
    if isinstance(topic, int) and not isinstance(topic, bool):
        return int.__index__(topic)
    if isinstance(topic, Address):
        return PyUnicode_AsUTF8String(PyUnicode_FromObject(topic.text))
    encode_topic(topic)
    raise TypeError(f"a topic is a str, an int, a chappe.Long or a chappe.Address, not {type(topic).__name__}")


cdef object topic_of(object key):
    """The topic that is found by a key."""
    if type(key) is tuple:
        return Long(key[0])
    return Address((<bytes> key).decode()) if type(key) is bytes else key


cdef class Outbox:
    """Accepts until its bound, hands out in order, forgets an event only when the node has it."""

    def __cinit__(self, Py_ssize_t queue_bytes, Py_ssize_t status_bytes):
        self.queue_bytes = queue_bytes
        self.status_bytes = status_bytes
        self.probe_after = min(65536, max(1, queue_bytes // 4))
        self.control = SegmentQueue(16384, 16)
        self.status = SegmentQueue(65536, max(4, status_bytes // 65536 + 1))
        self.events = SegmentQueue(65536, max(4, queue_bytes // 65536 + 2))
        self.datagrams = SegmentQueue(65536, 4)
        self.frames = SegmentQueue(PARCEL_BYTES, 2)
        self.parcels = Parcels(_number)
        self.max_payload = 1 << 20
        self.max_topics = 65536
        self.numbers = {}
        self.topics = []
        self.encoded = []
        self.refused = set()

    def __dealloc__(self):
        PyMem_RawFree(self.last_used)
        PyMem_RawFree(self.flushes)

    # --- accepting

    cdef int64_t event(
        self, object topic, const unsigned char* body, Py_ssize_t size, int priority, bytes extension, int64_t created
    ) except -1:
        """The sequence of the event, which is in the queue now; 0 if the queue or the topic table has no room.

        `created` other than 0 is all that its extension says.
        """
        cdef SegmentQueue events = self.events
        cdef Py_ssize_t extra = STAMP if created else 0 if extension is None else PyBytes_GET_SIZE(extension)
        cdef Py_ssize_t total = 16 + extra + size
        cdef unsigned char* place
        cdef int64_t number
        cdef uint32_t length = <uint32_t> (total - 4)
        if total - 4 > self.max_payload:
            raise ValueError(
                f"the message has {total - 4} bytes with its header, the node takes {self.max_payload}: "
                "send it in parts"
            )
        if events.head - events.tail + total > self.queue_bytes:
            self.refused_full += 1
            return 0
        if topic is self.last_topic:
            number = self.last_number
        else:
            number = self.number_of(topic)
            # other threads may have published in there, but none does from here on
            if number < 0 or events.head - events.tail + total > self.queue_bytes:
                self.refused_full += 1
                return 0
        place = events.reserve(total)
        self.sequence += 1
        place[0] = EVENT
        place[1] = (length >> 16) & 255
        place[2] = (length >> 8) & 255
        place[3] = length & 255
        put32(place + 4, <uint32_t> number)
        place[8] = priority | (EXT if extra else 0) | (RESENT if self.again else 0)
        place[9] = place[10] = place[11] = 0
        put32(place + 12, <uint32_t> self.sequence)
        if created:
            memcpy(place + 16, <const char*> b"\x00\x0b\x01\x00\x08", 5)  # 11 bytes: item 1 of 8 bytes
            put64(place + 21, <uint64_t> created)
        elif extra:
            memcpy(place + 16, PyBytes_AS_STRING(extension), extra)
        memcpy(place + 16 + extra, body, size)
        self.last_used[number] = events.head
        self.published += 1
        return <int64_t> self.sequence

    cdef int64_t number_of(self, object topic) except -2:
        """The number of a topic; what Python code it takes runs before the number is looked up."""
        cdef int64_t number
        cdef bytes encoded
        cdef object key = topic
        if type(topic) is not str and type(topic) is not int:
            key = key_of(topic)
        known = self.numbers.get(key)
        if known is None:
            encoded = encode_topic(topic_of(key))
            known = self.numbers.get(key)  # another thread may have been here
        number = self.new_number(key, encoded) if known is None else known
        if number < 0:
            return -1
        if self.refused and number in self.refused:
            self.refused.discard(number)
            if self.ready:
                self.define(<uint32_t> number, self.encoded[number])  # its rules may have changed: the node is asked
        if key is topic:
            self.last_topic = topic
            self.last_number = <uint32_t> number
        return number

    cdef int refuse(self, object topic) except -1:
        """The node does not take events to this topic."""
        known = self.numbers.get(key_of(topic))
        if known is not None:
            self.refused.add(known)
            self.last_topic = None
        return 0

    cdef int64_t new_number(self, object key, bytes encoded) except -2:
        """A free number, or the next one whose events are all at the node; -1 if there is none."""
        cdef Py_ssize_t number = len(self.topics), _tried, room
        cdef int64_t* grown
        if number < self.max_topics:
            if number >= self.last_used_room:
                room = max(256, self.last_used_room * 2)
                grown = <int64_t*> PyMem_RawRealloc(self.last_used, room * sizeof(int64_t))
                if grown == NULL:
                    raise MemoryError
                self.own_allocations += 1
                self.last_used = grown
                self.last_used_room = room
            if self.ready:
                self.define(<uint32_t> number, encoded)
            self.topics.append(key)
            self.encoded.append(encoded)
        else:
            for _tried in range(self.max_topics):
                number = self.hand
                self.hand = (self.hand + 1) % self.max_topics
                if self.last_used[number] <= self.events.tail:
                    break
            else:
                self.request_flush()
                return -1
            if self.ready:
                self.define(<uint32_t> number, encoded)
            del self.numbers[self.topics[number]]
            if <uint32_t> number == self.last_number:
                self.last_topic = None
            self.topics[number] = key
            self.encoded[number] = encoded
        self.numbers[key] = number
        self.last_used[number] = self.events.head
        return number

    cdef int define(self, uint32_t number, bytes encoded) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(encoded)
        cdef unsigned char* place = self.control.reserve(8 + size)
        put32(place, (<uint32_t> TOPIC << 24) | <uint32_t> (4 + size))
        put32(place + 4, number)
        memcpy(place + 8, PyBytes_AS_STRING(encoded), size)
        return 0

    cdef unsigned char* status_record(self, Py_ssize_t size) except? NULL:
        """Room for one record with its option blocks in the open STATUS frame; NULL if there is none."""
        cdef SegmentQueue status = self.status
        cdef unsigned char* place
        cdef uint32_t length
        if self.separate:
            place = self.datagram(STATUS, size)
            if place == NULL:
                self.refused_status += 1
            else:
                self.status_published += 1
            return place
        if not self.ready or status.head - status.tail + size + 4 > self.status_bytes:
            self.refused_status += 1
            return NULL
        self.status_published += 1
        place = self.open_frame
        if place != NULL and status.last.capacity - status.last.used >= size:
            length = (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]
            if length + size <= STATUS_FRAME and length + size <= self.max_payload:
                length += <uint32_t> size
                place[1] = (length >> 16) & 255
                place[2] = (length >> 8) & 255
                place[3] = length & 255
                return status.reserve(size)
        place = status.reserve(4 + size)
        self.open_frame = place
        place[0] = STATUS
        place[1] = 0
        place[2] = (size >> 8) & 255
        place[3] = size & 255
        return place + 4

    cdef unsigned char* datagram(self, int kind, Py_ssize_t size) except? NULL:
        """Room for the payload of a datagram of its own: publishers never pack (GS-005). NULL if there is none."""
        cdef SegmentQueue queue = self.datagrams
        cdef unsigned char* place
        if queue.head - queue.tail + size + 4 > self.status_bytes:
            return NULL
        place = queue.reserve(4 + size)
        put32(place, (<uint32_t> kind << 24) | <uint32_t> size)
        return place + 4

    cdef int gather_datagrams(self, iovec* frames, int limit) noexcept:
        cdef Segment* segment = self.datagrams.first
        cdef Py_ssize_t at, size
        cdef int count = 0
        while segment != NULL and count < limit:
            at = max(0, self.datagrams.tail - segment.start)
            while at < segment.used and count < limit:
                size = 4 + (get32(bytes_of(segment) + at) & 0xFFFFFF)
                frames[count].iov_base = bytes_of(segment) + at
                frames[count].iov_len = size
                count += 1
                at += size
            segment = segment.next
        return count

    cdef void datagrams_written(self, int count) noexcept:
        cdef Segment* segment = self.datagrams.first
        cdef int64_t offset = self.datagrams.tail
        cdef Py_ssize_t size
        while segment != NULL and count > 0:
            while count > 0 and offset < segment.start + segment.used:
                size = 4 + (get32(bytes_of(segment) + (offset - segment.start)) & 0xFFFFFF)
                self.out_bytes += size
                offset += size
                count -= 1
            segment = segment.next
        self.datagrams.release(offset)

    cdef int control_frame(self, int kind, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef unsigned char* place
        if size > 0xFFFFFF:
            raise ValueError(f"a frame holds at most 16777215 bytes, not {size}")
        place = self.control.reserve(4 + size)
        place[0] = kind
        place[1] = (size >> 16) & 255
        place[2] = (size >> 8) & 255
        place[3] = size & 255
        memcpy(place + 4, payload, size)
        return 0

    cdef int64_t request_flush(self) except -1:
        """The serial that `flushed` reaches when everything queued until now is at the node."""
        cdef Flush* grown
        cdef Flush* last
        cdef int room
        if self.flushes_count:
            last = &self.flushes[self.flushes_count - 1]
            if last.offset == self.events.head and last.serial > self.probed_serial:
                return last.serial  # the probe that it waits for is still to come, and says as much for this one
        if self.flushes_count == self.flushes_room:
            room = 2 * self.flushes_room + 8
            grown = <Flush*> PyMem_RawRealloc(self.flushes, room * sizeof(Flush))
            if grown == NULL:
                raise MemoryError("no memory for one more flush")
            self.flushes = grown
            self.flushes_room = room
        self.serial += 1
        self.flushes[self.flushes_count].offset = self.events.head
        self.flushes[self.flushes_count].serial = self.serial
        self.flushes_count += 1
        return self.serial

    # --- connections

    cdef int connected(self, Py_ssize_t max_payload, Py_ssize_t max_topics, int64_t credit) except -1:
        """Define the topics of the events that are kept, under new numbers, and send those events again."""
        cdef Segment* segment = self.events.first
        cdef Py_ssize_t at
        cdef unsigned char* frame
        cdef list old, old_encoded, topics = [], encoded = []
        cdef dict numbers = {}
        cdef object key
        cdef int64_t number, offset
        self._check_topics(max_topics)
        old, old_encoded = self.topics, self.encoded
        self.numbers = numbers
        self.topics = topics
        self.encoded = encoded
        self.refused.clear()
        self.last_topic = None
        self.hand = 0
        self.max_payload = max_payload
        self.max_topics = max_topics
        self.ready = False
        while segment != NULL:
            at = max(0, self.events.tail - segment.start)
            while at < segment.used:
                frame = bytes_of(segment) + at
                key = old[get32(frame + 4)]
                known = numbers.get(key)
                number = self.new_number(key, old_encoded[get32(frame + 4)]) if known is None else known
                put32(frame + 4, <uint32_t> number)
                offset = segment.start + at
                at += 4 + ((<Py_ssize_t> frame[1] << 16) | (<Py_ssize_t> frame[2] << 8) | frame[3])
                self.last_used[number] = segment.start + at
                if offset < self.ever_sent:
                    frame[8] |= RESENT
                    self.resent += 1
            segment = segment.next
        self.sent = self.events.tail
        self.sent_segment = self.events.first
        self.probed_offset = self.events.tail
        self.probed_serial = self.flushed
        self.has_credit = credit > 0
        self.credit = credit
        self.spent = 0
        self.ready = True
        for number in range(len(encoded)):
            self.define(<uint32_t> number, encoded[number])
        return 0

    cdef int _check_topics(self, Py_ssize_t max_topics) except -1:
        """ValueError if the events that are kept have more topics than the node takes."""
        cdef Segment* segment = self.events.first
        cdef Py_ssize_t at
        cdef unsigned char* frame
        cdef set used = set()
        if len(self.topics) <= max_topics:
            return 0
        while segment != NULL:
            at = max(0, self.events.tail - segment.start)
            while at < segment.used:
                frame = bytes_of(segment) + at
                used.add(get32(frame + 4))
                at += 4 + ((<Py_ssize_t> frame[1] << 16) | (<Py_ssize_t> frame[2] << 8) | frame[3])
            segment = segment.next
        if len(used) > max_topics:
            raise ValueError(f"the node takes {max_topics} topics, {len(used)} are queued: raise its max_topics")
        return 0

    cdef void disconnected(self) noexcept:
        """Forget the connection: control and status are dropped, events and flushes wait for the next one."""
        self.ready = False
        self.control.clear()
        self.status.clear()
        self.datagrams.clear()
        self.frames.clear()
        self.separate = False
        self.open_frame = NULL
        self.plan_count = self.plan_next = 0
        self.probes_count = self.probes_first = 0
        self.control_planned = self.control.head
        self.status_planned = self.status.head
        self.frames_planned = self.frames.head

    # --- writing

    cdef bint has_work(self) noexcept:
        return (self.plan_next < self.plan_count or self.control.head > self.control.tail
                or self.status.head > self.status.tail or self.events.head > self.sent
                or (self.ready and self.serial > self.probed_serial))

    cdef int gather(self, iovec* vectors, int limit) noexcept:
        cdef int count = 0, index
        if self.plan_next >= self.plan_count:
            self.compose()
        for index in range(self.plan_next, min(self.plan_count, self.plan_next + limit)):
            vectors[count] = self.plan[index]
            count += 1
        return count

    cdef void written(self, Py_ssize_t count) noexcept:
        cdef iovec* vector
        self.out_bytes += count
        while count > 0 and self.plan_next < self.plan_count:
            vector = &self.plan[self.plan_next]
            if <Py_ssize_t> vector.iov_len > count:
                vector.iov_base = <unsigned char*> vector.iov_base + count
                vector.iov_len -= count
                return
            count -= <Py_ssize_t> vector.iov_len
            self.plan_next += 1
        if self.plan_next >= self.plan_count:
            self.control.release(self.control_planned)
            self.status.release(self.status_planned)
            self.frames.release(self.frames_planned)

    cdef int compose(self) noexcept:
        self.plan_count = self.plan_next = 0
        self.control_planned = self.plan_queue(self.control)
        if not self.ready:
            return 0
        self.open_frame = NULL
        self.status_planned = self.plan_queue(self.status)
        self.plan_events()
        self.plan_probe()
        self.plan_parcels()
        return 0

    cdef int64_t plan_queue(self, SegmentQueue queue) noexcept:
        """Everything in the queue, as far as the plan has vectors; the offset that it reaches."""
        cdef Segment* segment = queue.first
        cdef Py_ssize_t skip
        cdef int64_t reached = queue.tail
        while segment != NULL and self.plan_count < PLAN_LIMIT // 3:
            skip = max(0, queue.tail - segment.start)
            if segment.used > skip:
                self.plan[self.plan_count].iov_base = bytes_of(segment) + skip
                self.plan[self.plan_count].iov_len = segment.used - skip
                self.plan_count += 1
                reached = segment.start + segment.used
            segment = segment.next
        return reached

    cdef int64_t plan_events(self) noexcept:
        """Events from `sent` on: whole frames, within the credit and the size of a plan."""
        cdef Segment* segment = self.sent_segment
        cdef Py_ssize_t at, size, length
        cdef int64_t room = PLAN_BYTES
        cdef unsigned char* frame
        if self.held or self.control.head > self.control_planned:
            return 0  # a definition that an event needs may be in what did not fit
        if segment == NULL:
            segment = self.events.first
        while segment != NULL and self.plan_count < PLAN_LIMIT - 2:
            at = self.sent - segment.start
            size = segment.used - at
            if self.has_credit and size > self.credit - self.spent:
                size = 0
                while at + size < segment.used:
                    frame = bytes_of(segment) + at + size
                    length = 4 + ((<Py_ssize_t> frame[1] << 16) | (<Py_ssize_t> frame[2] << 8) | frame[3])
                    if self.spent + size + length > self.credit:
                        break
                    size += length
            if size > 0:
                self.plan[self.plan_count].iov_base = bytes_of(segment) + at
                self.plan[self.plan_count].iov_len = size
                self.plan_count += 1
                self.sent += size
                self.spent += size
                room -= size
            self.sent_segment = segment
            if at + size < segment.used or room <= 0:
                break
            segment = segment.next
        if self.sent > self.ever_sent:
            self.ever_sent = self.sent
        return room

    cdef void plan_probe(self) noexcept:
        """Ask for an echo when a flush wants one, or much is unacknowledged."""
        cdef int64_t serial = self.probed_serial
        cdef int index
        cdef Sent* entry
        if self.control.head > self.control_planned or self.status.head > self.status_planned:
            return
        for index in range(self.flushes_count):
            if self.flushes[index].offset > self.sent:
                break
            serial = self.flushes[index].serial
        if serial <= self.probed_serial and self.sent - self.probed_offset < self.probe_after:
            return
        if self.probes_count >= PROBES:
            return
        self.token += 1
        entry = &self.probes[(self.probes_first + self.probes_count) % PROBES]
        entry.token = self.token
        entry.offset = self.sent
        entry.serial = serial
        self.probes_count += 1
        self.probed_offset = self.sent
        self.probed_serial = serial
        self.probe[0] = PROBE
        self.probe[1] = self.probe[2] = 0
        self.probe[3] = 16
        put64(self.probe + 4, self.token)
        put64(self.probe + 12, 0)
        self.plan[self.plan_count].iov_base = self.probe
        self.plan[self.plan_count].iov_len = 20
        self.plan_count += 1

    cdef void plan_parcels(self) noexcept:
        """Parcels, when all else is in the plan or has no credit: they are never in its way for long."""
        cdef Segment* segment
        cdef Py_ssize_t skip
        self.frames_planned = self.frames.tail
        if self.held or self.control.head > self.control_planned or self.status.head > self.status_planned:
            return
        self.parcels.fill(self.frames, PARCEL_BYTES, self.now_ns)
        segment = self.frames.first
        while segment != NULL and self.plan_count < PLAN_LIMIT:
            skip = max(0, self.frames.tail - segment.start)
            if segment.used > skip:
                self.plan[self.plan_count].iov_base = bytes_of(segment) + skip
                self.plan[self.plan_count].iov_len = segment.used - skip
                self.plan_count += 1
                self.frames_planned = segment.start + segment.used
            segment = segment.next

    cdef int echoed(self, uint64_t token) noexcept:
        """The node has everything before that probe; 1 if that released events or finished a flush."""
        cdef Sent* entry
        cdef int index, done
        for index in range(self.probes_count):
            if self.probes[(self.probes_first + index) % PROBES].token == token:
                break
        else:
            return 0
        entry = &self.probes[(self.probes_first + index) % PROBES]
        if self.sent_segment != NULL and self.sent_segment.start + self.sent_segment.used <= entry.offset:
            self.sent_segment = self.sent_segment.next
        self.events.release(entry.offset)
        self.flushed = max(self.flushed, entry.serial)
        done = 0
        while done < self.flushes_count and self.flushes[done].serial <= self.flushed:
            done += 1
        self.flushes_count -= done
        memmove(self.flushes, self.flushes + done, self.flushes_count * sizeof(Flush))
        self.probes_first = (self.probes_first + index + 1) % PROBES
        self.probes_count -= index + 1
        return 1
