"""Watched variables: the newest value of each (a holder), and streams of all values.

A stream keeps its values as columns in a ring, so that a RecordBatch is a copy of ranges; objects are made only for
those who ask for one event at a time.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.string cimport memcpy, memset

from chappe.client._waiting cimport Steps
from chappe.engine._intervals cimport round_of

from chappe.client.columns import names_array, status_batch, type_code, value_column
from chappe.client.derived import DerivedHolder, decode_blocks

cdef enum:
    UNREAD_LIMIT = 4096      # kept for a stream that nobody iterates yet
    CALLED = 1
    COPIES = 2


cdef inline double as_double(uint64_t bits) noexcept:
    cdef double number
    memcpy(&number, &bits, 8)
    return number


@cython.freelist(1024)
@cython.no_gc
@cython.final
cdef class StatusEvent:
    """One value of a variable, with the time it was created and received."""

    @property
    def variable_id(self):
        return self.watch.variable_id

    @property
    def publisher(self):
        return self.watch.publisher

    @property
    def variable(self):
        return self.watch.variable

    @property
    def value(self):
        return self.watch.value_of(self.bits, self.options)

    @property
    def derived(self):
        """Values that the publisher derived from this one and those before it, by name (GS-046)."""
        return self.watch.derived_of(self.options)

    @property
    def latency_ns(self):
        return self.received - self.created

    def __repr__(self):
        return f"StatusEvent({self.publisher}/{self.variable}={self.value!r}, created={self.created})"


cdef class StatusStream(Waitable):
    """All values of one or more variables in order of arrival, bounded; `dropped` counts what found no room.

    Before anybody iterates only the newest 4,096 are kept.
    """

    def __init__(self, *, max_queue=65536, on_full="drop"):
        if max_queue < 1:
            raise ValueError(f"a stream keeps at least one value, not {max_queue}")
        if on_full not in ("drop", "block"):
            raise ValueError(f"on_full is 'drop' or 'block', not {on_full!r}")
        self.max_queue = max_queue
        self.blocking = on_full == "block"
        self.watches = []

    def __dealloc__(self):
        cdef Py_ssize_t index
        if self.options != NULL:
            for index in range(self.room):
                Py_XDECREF(self.options[index])
        PyMem_RawFree(self.options)
        PyMem_RawFree(self.created)
        PyMem_RawFree(self.received)
        PyMem_RawFree(self.bits)
        PyMem_RawFree(self.place)

    cdef Py_ssize_t size(self) noexcept:
        return 0 if self.unnamed else self.count

    def names_known(self, Py_ssize_t count):
        """So many variables that came without being watched have their names, or never will."""
        self.unnamed -= count
        self.names = None
        if self.size() >= self.wake_at:
            self.wake()

    cdef int add(self, Watch watch) except -1:
        watch.position = <uint32_t> len(self.watches)
        watch.stream = self
        self.watches.append(watch)
        self.names = None
        self.kind = None
        return 0

    cdef int offer(self, Watch watch, int64_t created, int64_t received, uint64_t bits, bytes options) except -1:
        cdef Py_ssize_t at, limit = self.max_queue
        if self.closed:
            return 0
        if not self.iterated and limit > UNREAD_LIMIT:
            limit = UNREAD_LIMIT
        if self.count >= limit:
            if not self.iterated:
                self.first = (self.first + 1) & (self.room - 1)
                self.count -= 1
                self.unread += 1
            elif not self.blocking:
                self.dropped += 1
                return 0
            else:
                self.holding = True
        if self.count >= self.room:
            self.enlarge()
        at = (self.first + self.count) & (self.room - 1)
        self.created[at] = created
        self.received[at] = received
        self.bits[at] = bits
        self.place[at] = watch.position
        if options is not None and self.options == NULL:
            self.options = <PyObject**> PyMem_RawMalloc(self.room * sizeof(PyObject*))
            if self.options == NULL:
                raise MemoryError
            memset(self.options, 0, self.room * sizeof(PyObject*))
        if self.options != NULL:
            Py_XDECREF(self.options[at])
            self.options[at] = NULL
            if options is not None:
                Py_INCREF(options)
                self.options[at] = <PyObject*> options
        self.count += 1
        return 1

    cdef int enlarge(self) except -1:
        cdef Py_ssize_t room = max(256, self.room * 2)
        cdef void* grown[5]
        cdef void* old[5]
        cdef Py_ssize_t width[5]
        cdef int column
        old[:] = [self.created, self.received, self.bits, self.place, self.options]
        width[:] = [8, 8, 8, 4, sizeof(PyObject*)]
        for column in range(5):
            grown[column] = NULL
            if column == 4 and self.options == NULL:
                continue
            grown[column] = PyMem_RawMalloc(room * width[column])
            if grown[column] == NULL:
                raise MemoryError
            memset(grown[column], 0, room * width[column])
            self.copy_column(grown[column], old[column], width[column], self.count)
            PyMem_RawFree(old[column])
        self.created = <int64_t*> grown[0]
        self.received = <int64_t*> grown[1]
        self.bits = <uint64_t*> grown[2]
        self.place = <uint32_t*> grown[3]
        self.options = <PyObject**> grown[4]
        self.room = room
        self.first = 0
        return 0

    cdef void copy_column(self, void* out, void* column, Py_ssize_t width, Py_ssize_t rows) noexcept:
        """The oldest `rows` entries of a column, in order."""
        cdef Py_ssize_t until_end = min(rows, self.room - self.first)
        if rows <= 0:
            return
        memcpy(out, <char*> column + self.first * width, until_end * width)
        memcpy(<char*> out + until_end * width, column, (rows - until_end) * width)

    cdef StatusEvent pop(self):
        cdef StatusEvent event = StatusEvent.__new__(StatusEvent)
        cdef Py_ssize_t at = self.first
        event.watch = <Watch> self.watches[self.place[at]]
        event.created = self.created[at]
        event.received = self.received[at]
        event.bits = self.bits[at]
        if self.options != NULL and self.options[at] != NULL:
            event.options = <bytes> <object> self.options[at]
            Py_XDECREF(self.options[at])
            self.options[at] = NULL
        self.first = (at + 1) & (self.room - 1)
        self.count -= 1
        return event

    cdef object pop_arrow(self, Py_ssize_t limit):
        cdef Py_ssize_t rows = min(limit, self.count), row
        cdef Watch watch
        cdef list watches = self.watches
        if self.names is None:
            self.names = names_array([f"{watch.publisher}/{watch.variable}" for watch in watches])
            self.ids = PyBytes_FromStringAndSize(NULL, 4 * len(watches))
            for row in range(len(watches)):
                (<uint32_t*> PyBytes_AS_STRING(self.ids))[row] = (<Watch> watches[row]).variable_id
            kinds = {watch.type for watch in watches}
            if any(kind.startswith("struct:") for kind in kinds):
                raise TypeError("values of user types have no Arrow column: iterate over the watch or use batches()")
            if len(kinds) > 1 and "bytes" in kinds:
                raise TypeError("a stream of bytes and other variables has no common Arrow column: watch them apart")
            self.codes = None if len(kinds) == 1 else bytes([watch.code for watch in watches])
            self.kind = kinds.pop() if len(kinds) == 1 else "float"
        cdef bytes created = PyBytes_FromStringAndSize(NULL, rows * 8)
        cdef bytes received = PyBytes_FromStringAndSize(NULL, rows * 8)
        cdef bytes name = PyBytes_FromStringAndSize(NULL, rows * 4)
        cdef bytes variable = PyBytes_FromStringAndSize(NULL, rows * 4)
        cdef bytes value = PyBytes_FromStringAndSize(NULL, rows * 8)
        cdef uint32_t* name_out = <uint32_t*> PyBytes_AS_STRING(name)
        cdef uint32_t* variable_out = <uint32_t*> PyBytes_AS_STRING(variable)
        self.copy_column(PyBytes_AS_STRING(created), self.created, 8, rows)
        self.copy_column(PyBytes_AS_STRING(received), self.received, 8, rows)
        self.copy_column(PyBytes_AS_STRING(name), self.place, 4, rows)
        self.copy_column(PyBytes_AS_STRING(value), self.bits, 8, rows)
        cdef const uint32_t* ids = <const uint32_t*> PyBytes_AS_STRING(self.ids)
        for row in range(rows):
            variable_out[row] = ids[name_out[row]]
        if self.kind == "bool" or self.kind == "bytes" or self.codes is not None:
            value = value_column(self.kind, value, name, self.codes)
        if self.options != NULL:
            for row in range(rows):
                Py_XDECREF(self.options[(self.first + row) & (self.room - 1)])
                self.options[(self.first + row) & (self.room - 1)] = NULL
        self.first = (self.first + rows) & (self.room - 1)
        self.count -= rows
        return status_batch(rows, self.kind, self.names, name, variable, created, received, value)

    cdef object take(self, int form, Py_ssize_t limit):
        cdef list taken
        cdef Py_ssize_t _number
        if form == 0:
            result = self.pop()
        elif form == 1:
            taken = []
            for _number in range(min(limit, self.count)):
                taken.append(self.pop())
            result = taken
        else:
            result = self.pop_arrow(limit)
        if self.holding and self.count <= self.max_queue // 2:
            self.holding = False
            if self.owner is not None:
                self.owner.subscription_has_room(self)
        return result

    def take_nowait(self, Py_ssize_t limit=65536):
        """What is queued now, as a list of at most `limit` events; never waits."""
        self.iterated = True
        return self.take(1, limit) if self.size() else []

    def __aiter__(self):
        self.iterated = True
        return Steps(self)

    def __anext__(self):
        self.iterated = True
        return Steps(self)

    def batches(self, Py_ssize_t max=65536):
        """Iterate over lists of what has come, at most `max` events each."""
        self.iterated = True
        return Steps(self, 1, max)

    def arrow(self, Py_ssize_t max_rows=65536, double max_wait=0.0):
        """Iterate over RecordBatches; with `max_wait` seconds a batch waits that long for `max_rows`."""
        self.iterated = True
        return Steps(self, 2, max_rows, max_wait)

    def unwatch(self):
        """Stop: what is queued can still be read. Awaitable."""
        return self.owner.unwatch(self)


cdef class Watch:
    """The newest value of one variable (by its creation time, GS-043); iterate it for all values.

    `callback(event)` is called for every value (GS-044).
    """

    def __init__(self, publisher, variable, *, interval_ns=0, callback=None, StatusStream stream=None, max_queue=65536,
                 on_full="drop"):
        self.publisher = publisher
        self.variable = variable
        self.interval_ns = interval_ns
        self.callback = callback
        self.attended = CALLED if callback is not None else 0
        self.taps = []
        self.patterns = ()
        self.type = "float"
        if stream is None:
            stream = StatusStream(max_queue=max_queue, on_full=on_full)
        stream.add(self)

    def admit(self, variable_id, type, rate_num, rate_den, every, patterns=()):
        """The node watches it for us, under this number."""
        self.code = type_code(self.publisher, self.variable, type)
        self.variable_id = variable_id
        self.type = type
        self.patterns = tuple(patterns)
        self.rate_num = rate_num
        self.rate_den = rate_den
        self.every = every
        self.active = True
        self.stream.names = None

    def named(self, publisher, variable, type):
        """What a flooded variable is."""
        self.code = type_code(publisher, variable, type)
        self.publisher = publisher
        self.variable = variable
        self.type = type

    def retime(self, every):
        """From now on one of `every` published values is for this watch: another mode has begun."""
        self.every = every

    def tap(self, function):
        """Call `function(event)` with each value, before the callback."""
        self.taps = [*self.taps, function]
        self.attended |= CALLED

    def untap(self, function):
        """Call it no more."""
        self.taps = [each for each in self.taps if each != function]
        if self.callback is None and not self.taps:
            self.attended &= ~CALLED

    def expect_copies(self):
        """It comes by several paths: of values with the same creation time only the first counts (GS-054)."""
        if self.copies is None:
            self.copies = Copies()
        self.attended |= COPIES

    cdef int accept(self, int64_t created, int64_t received, uint64_t bits, bytes options, list pushes) except -1:
        if self.filtered and self.every > 1 and self.rate_num > 0:
            if round_of(created, self.rate_num, self.rate_den) % self.every != 0:
                return 0
        if self.attended & COPIES and self.copies.repeated(created):
            self.duplicates += 1
            return 0
        self.updates += 1
        if not self.has_value or created > self.newest_created:
            self.has_value = True
            self.extrapolated = False
            self.newest_created = created
            self.newest_received = received
            self.newest_bits = bits
            self.newest_options = options
        if self.attended & CALLED:
            pushes.append(self.event(created, received, bits, options))
            if self.callback is not None and not self.stream.iterated:
                return 0
        return self.stream.offer(self, created, received, bits, options)

    cdef StatusEvent event(self, int64_t created, int64_t received, uint64_t bits, bytes options):
        cdef StatusEvent event = StatusEvent.__new__(StatusEvent)
        event.watch = self
        event.created = created
        event.received = received
        event.bits = bits
        event.options = options
        return event

    cdef int pushed(self, StatusEvent event) except -1:
        for function in self.taps:
            function(event)
        if self.callback is not None:
            self.callback(event)
        return 0

    def estimate(self, value, int64_t created, int64_t received):
        """Take this as the newest value until a newer one comes; the event of it (GS-050)."""
        cdef StatusEvent event
        cdef double number
        if self.code == FLOAT:
            number = value
            memcpy(&self.estimate_bits, &number, 8)
        elif self.code == INT:
            self.estimate_bits = <uint64_t> <int64_t> value
        else:
            raise TypeError(f"only int and float are estimated, not {self.publisher}/{self.variable} ({self.type})")
        self.estimate_created = created
        self.estimate_received = received
        event = self.event(created, received, self.estimate_bits, None)
        event.extrapolated = self.extrapolated = True
        return event

    cdef object derived_of(self, bytes options):
        return decode_blocks(self.patterns, options) if self.patterns and options is not None else {}

    cdef object value_of(self, uint64_t bits, bytes options):
        cdef unsigned char raw[8]
        cdef int place
        cdef bytes whole
        if self.code == FLOAT:
            return as_double(bits)
        if self.code == INT:
            return <int64_t> bits
        if self.code == BOOL:
            return (bits >> 56) != 0
        for place in range(8):
            raw[place] = (bits >> (56 - 8 * place)) & 255
        whole = PyBytes_FromStringAndSize(<char*> raw, 8)
        if options is not None:
            whole += options[:max(len(options) - 24 * len(self.patterns), 0)]
        return whole if self.decoder is None else self.decoder(whole)

    @property
    def value(self):
        """The newest value, or None before the first."""
        if self.extrapolated:
            return self.value_of(self.estimate_bits, None)
        return self.value_of(self.newest_bits, self.newest_options) if self.has_value else None

    @property
    def created(self):
        if self.extrapolated:
            return self.estimate_created
        return self.newest_created if self.has_value else None

    @property
    def received(self):
        if self.extrapolated:
            return self.estimate_received
        return self.newest_received if self.has_value else None

    @property
    def latency_ns(self):
        """Of the newest value that came; an estimate has none."""
        return self.newest_received - self.newest_created if self.has_value and not self.extrapolated else None

    @property
    def newest(self):
        """The newest value that came as one event, so that its parts belong together; None before the first."""
        if not self.has_value:
            return None
        return self.event(self.newest_created, self.newest_received, self.newest_bits, self.newest_options)

    @property
    def derived(self):
        """Derived values of the newest value that came, by name; decoded when asked for."""
        return self.derived_of(self.newest_options)

    def hold(self, name, type=None):
        """A holder of one derived value; ValueError if the publisher sends none of that name and type (GS-046)."""
        return DerivedHolder(self, name, type)

    @property
    def granted(self):
        """What was granted, by mode; empty where no broker manages the node and no quality was asked for."""
        return {} if self.quality is None else self.quality.granted

    @property
    def violations(self):
        """How often the quality was violated: counts of late and missed values."""
        return {} if self.quality is None else self.quality.violations

    @property
    def withdrawn(self):
        """The error that ended this watch, or None (GS-053)."""
        return None if self.quality is None else self.quality.withdrawn

    @property
    def dropped(self):
        return self.stream.dropped

    def __aiter__(self):
        return self.stream.__aiter__()

    def __anext__(self):
        return self.stream.__anext__()

    def batches(self, max=65536):
        """Iterate over lists of what has come, at most `max` events each."""
        return self.stream.batches(max)

    def arrow(self, max_rows=65536, max_wait=0.0):
        """Iterate over RecordBatches; with `max_wait` seconds a batch waits that long for `max_rows`."""
        return self.stream.arrow(max_rows, max_wait)

    def take_nowait(self, limit=65536):
        """What is queued now; never waits."""
        return self.stream.take_nowait(limit)

    def unwatch(self):
        """Stop. Awaitable."""
        return self.owner.unwatch(self)

    def __repr__(self):
        return f"Watch({self.publisher}/{self.variable}={self.value!r})"
