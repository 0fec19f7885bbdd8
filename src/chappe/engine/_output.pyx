"""What leaves an engine: the next bytes of a port, what must be confirmed, and credit for publishers."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from chappe.engine._bytes cimport frame_size, get32, put32, put64, put_header, record_size
from chappe.engine._memory cimport memory_resize
from chappe.engine._ports cimport (
    BYTES_OUT,
    CREDIT,
    DROP_CLOSED,
    DROP_NO_MEMORY,
    EVENT,
    LOSS,
    OPEN,
    PARCEL,
    PROBE,
    RESENT,
    STATUS,
    TRAIN,
    TRAINS_OUT,
    Port,
    Ports,
    mark_dirty,
)
from chappe.engine._queue cimport (
    Queue,
    Segment,
    queue_advance,
    queue_front,
    queue_put,
    queue_reserve,
    queue_shift,
)
from chappe.engine._stack cimport iovec
from chappe.engine._topics cimport ROUTED_TOPIC

cdef enum:
    GATHER_BYTES = 262144          # most bytes of one write: what an alert may have to wait for
    LOSS_PAUSE_NS = 100_000_000
    PIECE_BYTES = 16384            # of a train, between two of which everything else may be written

PASSED_ON = <uint64_t> 1 << 60


cdef int gather(Ports ports, int port, iovec* vectors, int limit) noexcept:
    """List the next bytes to write: what was half written, then the classes by urgency."""
    cdef Port* p = ports.table[port]
    cdef int cls, n = 0, first
    cdef uint64_t budget = GATHER_BYTES
    cdef Queue* queue
    cdef Segment* segment
    if p.state != OPEN:
        return 0
    _before_gather(ports, p)
    for cls in range(4):
        p.queues[cls].plan_end = p.queues[cls].sent
    if p.sticky >= 0:
        queue = &p.queues[p.sticky]
        segment = queue_front(queue)
        vectors[0].iov_base = segment.bytes + queue.offset
        vectors[0].iov_len = p.sticky_end - queue.sent
        queue.plan_end = p.sticky_end
        return 1
    for cls in range(4):
        first = n
        n = _list(&p.queues[cls], vectors, n, limit, budget)
        for first in range(first, n):
            if vectors[first].iov_len >= budget:
                return n
            budget -= vectors[first].iov_len
        if n == limit:
            break
    return n


cdef void _before_gather(Ports ports, Port* p) noexcept:
    """Frames that the port itself adds when it writes: losses, conflated records, acknowledgement probes."""
    cdef uint8_t frame[20]
    cdef Queue* queue
    cdef uint64_t token
    cdef int cls
    if p.loss and p.lost_status + p.lost_events != p.lost_told and (
            p.lost_told == 0 or ports.clocks.mono_ns - p.loss_sent_at >= LOSS_PAUSE_NS):
        put_header(frame, LOSS, 16)
        put64(frame + 4, p.lost_status)
        put64(frame + 12, p.lost_events)
        if queue_put(&ports.pool, &p.queues[0], frame, 20) == 0:
            p.lost_told = p.lost_status + p.lost_events
            p.loss_sent_at = ports.clocks.mono_ns
    if p.npending:
        ports._flush_pending(p)
    if p.riding_token:
        for cls in range(4):
            if p.queues[cls].sent != p.queues[cls].enqueued:
                _probe_now(ports, p, p.riding_token)
                break
    if p.retain:
        for cls in range(4):
            queue = &p.queues[cls]
            if queue.probe_token == 0 and queue.keep > (queue.received if queue.passing_token else queue.released):
                token = (<uint64_t> 1 << 63) | (<uint64_t> cls << 61) | (ports.tokens_made + 1)
                if queue.passing_token == 0:
                    token |= PASSED_ON
                put_header(frame, PROBE, 16)
                put64(frame + 4, token)
                put64(frame + 12, <uint64_t> ports.clocks.mono_ns)
                if queue_put(&ports.pool, queue, frame, 20) < 0:
                    continue  # asked with the next bytes
                ports.tokens_made += 1
                queue.probe_token = token
                queue.probe_position = queue.enqueued
                if token & PASSED_ON:
                    queue.passing_token = token
                    queue.passing_position = queue.enqueued
    if p.train_out.size:
        for cls in range(4):
            if p.queues[cls].sent != p.queues[cls].enqueued:
                return
        _next_piece(ports, p)


cdef bint _probe_now(Ports ports, Port* p, uint64_t token) noexcept:
    """Put a probe in front of all else; whether there was room."""
    cdef uint8_t frame[20]
    p.riding_token = 0
    p.probe_token = token
    p.probe_sent_at = ports.clocks.mono_ns
    put_header(frame, PROBE, 16)
    put64(frame + 4, token)
    put64(frame + 12, <uint64_t> ports.clocks.mono_ns)
    return queue_put(&ports.pool, &p.queues[0], frame, 20) == 0


cdef void _next_piece(Ports ports, Port* p) noexcept:
    """The next frame of a train: one at a time, so that a train never keeps anything else waiting."""
    cdef uint32_t left = p.train_out.size - p.train_out.done
    cdef uint32_t size = min(<uint32_t> PIECE_BYTES, max(<uint32_t> 256, p.train_out.size // 8))
    cdef uint8_t* frame
    if left <= size:
        size = left
    elif left - size < 20:
        size = left - 20  # the last frame needs room for its header
    frame = queue_reserve(&ports.pool, &p.queues[3], size)
    if frame == NULL:
        p.train_out.size = 0
        return
    put_header(frame, TRAIN, size - 4)
    put64(frame + 4, p.train_out.token)
    put32(frame + 12, p.train_out.size)
    put32(frame + 16, p.train_out.done)
    memset(frame + 20, 0, size - 20)
    p.train_out.done += size
    if p.train_out.done == p.train_out.size:
        p.train_out.size = 0
        p.counters[TRAINS_OUT] += 1


cdef int _list(Queue* queue, iovec* vectors, int n, int limit, uint64_t budget) noexcept:
    """Add the unwritten parts of a queue's segments, whole segments only, until the budget is used up."""
    cdef Segment* segment = queue_front(queue)
    cdef uint32_t offset = queue.offset
    cdef uint64_t length
    while segment != NULL and n < limit and budget > 0:
        length = segment.size - offset
        if length:
            segment.open_frame = -1
            vectors[n].iov_base = segment.bytes + offset
            vectors[n].iov_len = length
            n += 1
            queue.plan_end += length
            budget = budget - length if budget > length else 0
        segment = segment.next
        offset = 0
    return n


cdef void written(Ports ports, int port, Py_ssize_t count) noexcept:
    """The socket took `count` of the gathered bytes, in the order they were listed."""
    cdef Port* p = ports.table[port]
    cdef Queue* queue
    cdef uint64_t part, left = <uint64_t> count
    cdef int cls
    if left == 0:
        return  # what was half written stays so
    p.counters[BYTES_OUT] += left
    for cls in range(4):
        queue = &p.queues[cls]
        part = min(queue.plan_end - queue.sent, left)
        if part:
            queue_advance(&ports.pool, queue, part, p.retain)
            left -= part
        if left == 0:
            _stick(p, cls)
            break
    if p.window:
        grant_credit(ports, port, p)  # there may have been no room for it
    if p.nwaiting and p.queues[1].enqueued + p.queues[2].enqueued + p.queues[3].enqueued - (
            p.queues[1].released + p.queues[2].released + p.queues[3].released) < p.limit // 4:
        unhold(ports, p)


cdef void _stick(Port* p, int cls) noexcept:
    """After a write: if it ended inside a segment, that part must be finished before another class may write."""
    cdef Queue* queue = &p.queues[cls]
    cdef Segment* segment
    p.sticky = -1
    if queue.plan_end > queue.sent:
        segment = queue_front(queue)
        if queue.offset:
            p.sticky_end = min(segment.start + segment.size, queue.plan_end)
            p.sticky = cls


cdef int gather_datagrams(Ports ports, int port, iovec* frames, int limit) noexcept:
    """One iovec a frame, most urgent first."""
    cdef Port* p = ports.table[port]
    cdef int cls, n = 0
    cdef Segment* segment
    cdef uint32_t offset, length
    if p.state != OPEN:
        return 0
    if p.npending:
        ports._flush_pending(p)
    for cls in range(4):
        p.queues[cls].plan_end = p.queues[cls].sent
        segment = queue_front(&p.queues[cls])
        offset = p.queues[cls].offset
        while segment != NULL and n < limit:
            segment.open_frame = -1
            while offset < segment.size and n < limit:
                length = frame_size(segment.bytes + offset)
                frames[n].iov_base = segment.bytes + offset
                frames[n].iov_len = length
                p.queues[cls].plan_end += length
                offset += length
                n += 1
            segment = segment.next
            offset = 0
    return n


cdef void datagrams_written(Ports ports, int port, int count) noexcept:
    cdef Port* p = ports.table[port]
    cdef int cls
    cdef Segment* segment
    cdef uint32_t length
    for cls in range(4):
        while count > 0 and p.queues[cls].sent < p.queues[cls].plan_end:
            segment = queue_front(&p.queues[cls])
            length = frame_size(segment.bytes + p.queues[cls].offset)
            queue_advance(&ports.pool, &p.queues[cls], length, False)
            p.counters[BYTES_OUT] += length
            count -= 1


cdef int rebuild(Ports ports, int port, Port* p) except -1:
    """Queues for a new connection: definitions, then retained events, then what was never written.

    Numbers that nothing queued and no forwarding entry uses are defined again when they are used again: a port that
    saw a million topics does not begin with a million definitions.
    """
    cdef Queue olds[4]
    cdef uint32_t word, bit
    cdef int cls
    for cls in range(4):
        olds[cls] = p.queues[cls]
        memset(&p.queues[cls], 0, sizeof(Queue))
        p.queues[cls].holding = &p.holding
    p.sticky = -1
    _forget_unused(ports, p, olds)
    ports.pool.forced = True  # what was accepted is not refused now
    for word in range(p.topics_words):
        if p.topics_out[word]:
            for bit in range(64):
                if (p.topics_out[word] >> bit) & 1:
                    ports.define_topic(port, p, word * 64 + bit)
    for word in range(p.issuers_words):
        if p.issuers_out[word]:
            for bit in range(64):
                if (p.issuers_out[word] >> bit) & 1:
                    ports.define_issuer(port, p, word * 64 + bit)
    for cls in range(4):
        while olds[cls].head != NULL:
            _keep_frames(ports, p, cls, &olds[cls])
            queue_shift(&ports.pool, &olds[cls])
    ports.pool.forced = False
    ports.topics.stamp += 1  # routes look again which numbers their ports know
    mark_dirty(ports, port, p)
    return 0


cdef bint _kept(Ports ports, Queue* old, const uint8_t* frame, uint64_t end) noexcept:
    """Whether a frame that ends there is sent by the next connection, too."""
    cdef int kind = frame[0]
    if end <= old.released:
        return False
    if end <= old.received and (kind != EVENT or not ports.topics.topics[get32(frame + 4)].group & ROUTED_TOPIC):
        return False  # the other side has it; only what it was to pass on is kept for longer
    return kind == EVENT or (kind == STATUS and end > old.sent)


cdef void _forget_unused(Ports ports, Port* p, Queue* olds) noexcept:
    """Leave the bits of those numbers that the next connection needs from its beginning."""
    cdef uint32_t word, bit, number, offset
    cdef Segment* segment
    cdef uint8_t* frame
    cdef int cls
    for word in range(p.topics_words):
        for bit in range(64):
            number = word * 64 + bit
            if (p.topics_out[word] >> bit) & 1 and not (
                    ports.topics.topics[number].group & ROUTED_TOPIC and ports.topics.topics[number].refs):
                p.topics_out[word] &= ~(<uint64_t> 1 << bit)
    if p.issuers_words:
        memset(p.issuers_out, 0, p.issuers_words * sizeof(uint64_t))
    for cls in range(4):
        segment = olds[cls].head
        while segment != NULL:
            offset = 0
            while offset < segment.size:
                frame = segment.bytes + offset
                offset += frame_size(frame)
                if frame[0] == EVENT and _kept(ports, &olds[cls], frame, segment.start + offset):
                    number = get32(frame + 4)
                    p.topics_out[number >> 6] |= <uint64_t> 1 << (number & 63)
                    number = get32(frame + 8) & 0xFFFFFF
                    p.issuers_out[number >> 6] |= <uint64_t> 1 << (number & 63)
            segment = segment.next


cdef void _keep_frames(Ports ports, Port* p, int cls, Queue* old) noexcept:
    """Copy what is kept of the oldest segment."""
    cdef Segment* segment = old.head
    cdef uint8_t* frame
    cdef uint32_t offset = 0, length, inner
    while offset < segment.size:
        frame = segment.bytes + offset
        length = frame_size(frame)
        offset += length
        if not _kept(ports, old, frame, segment.start + offset):
            if frame[0] == PARCEL and segment.start + offset > old.sent:
                p.counters[DROP_CLOSED] += 1  # its ends send it again
            continue
        if frame[0] != STATUS and segment.start + offset - length < old.sent:
            p.counters[RESENT] += 1
            frame[8] |= 0x20
        if queue_put(&ports.pool, &p.queues[cls], frame, length) == 0:
            if frame[0] != STATUS:
                p.queues[cls].keep = p.queues[cls].enqueued
        elif frame[0] == EVENT:
            ports._drop_event(p, DROP_NO_MEMORY, frame)
        else:
            inner = 4
            while inner < length:
                ports._drop_status(p, DROP_NO_MEMORY, frame + inner)
                inner += record_size(frame + inner)


cdef void count_unsent(Ports ports, Port* p) noexcept:
    """What a closing port still had to write is lost for it: count each event and record."""
    cdef int cls
    cdef Segment* segment
    cdef uint8_t* frame
    cdef uint32_t offset, length, inner
    for cls in range(4):
        segment = p.queues[cls].head
        while segment != NULL:
            offset = 0
            while offset < segment.size:
                frame = segment.bytes + offset
                length = frame_size(frame)
                if segment.start + offset + length > p.queues[cls].sent:
                    if frame[0] == EVENT:
                        ports._drop_event(p, DROP_CLOSED, frame)
                    elif frame[0] == PARCEL:
                        p.counters[DROP_CLOSED] += 1
                    elif frame[0] == STATUS:
                        inner = 4
                        while inner < length:
                            ports._drop_status(p, DROP_CLOSED, frame + inner)
                            inner += record_size(frame + inner)
                offset += length
            segment = segment.next
    for offset in range(p.npending):
        ports._drop_status(p, DROP_CLOSED, p.pending[offset].record)
    p.npending = 0
    p.pending_bytes = 0
    if p.index_capacity:
        memset(p.pending_index, 0, p.index_capacity * sizeof(uint32_t))


cdef void grant_credit(Ports ports, int port, Port* p) noexcept:
    """A CREDIT frame once half the window is used and nobody holds this client back."""
    cdef uint8_t frame[12]
    if p.window == 0 or p.holds or p.event_bytes + p.window // 2 < p.granted:
        return
    put_header(frame, CREDIT, 8)
    put64(frame + 4, p.event_bytes + p.window)
    if ports.put_frame(port, p, 0, frame, 12, True) == 0:
        p.granted = p.event_bytes + p.window


cdef void hold(Ports ports, int arrival, Port* from_port, int port, Port* p) noexcept:
    """A backpressure subscriber is half full: its publisher gets no credit until it has drained."""
    cdef uint32_t i
    cdef void* block
    if from_port.window == 0 or p.queues[1].enqueued + p.queues[2].enqueued + p.queues[3].enqueued - (
            p.queues[1].released + p.queues[2].released + p.queues[3].released) < p.limit // 2:
        return
    for i in range(p.nwaiting):
        if p.waiting[i] == <uint32_t> arrival:
            return
    if p.nwaiting == p.waiting_capacity:
        block = memory_resize(ports.memory, p.waiting, (p.waiting_capacity * 2 + 4) * sizeof(uint32_t))
        if block == NULL:
            return  # it is not held back: what finds no room is dropped and counted
        p.waiting = <uint32_t*> block
        p.waiting_capacity = p.waiting_capacity * 2 + 4
    p.waiting[p.nwaiting] = <uint32_t> arrival
    p.nwaiting += 1
    from_port.holds += 1


cdef void unhold(Ports ports, Port* p) noexcept:
    cdef uint32_t i
    cdef Port* publisher
    for i in range(p.nwaiting):
        publisher = ports.table[p.waiting[i]]
        publisher.holds -= 1
        if publisher.state == OPEN:
            grant_credit(ports, <int> p.waiting[i], publisher)
    p.nwaiting = 0


cdef void forget_publisher(Ports ports, int port) noexcept:
    """A publisher is gone: nobody waits to give it credit."""
    cdef int other
    cdef uint32_t i
    cdef Port* p
    for other in range(ports.ntable):
        p = ports.table[other]
        i = 0
        while i < p.nwaiting:
            if p.waiting[i] == <uint32_t> port:
                p.nwaiting -= 1
                p.waiting[i] = p.waiting[p.nwaiting]
            else:
                i += 1
