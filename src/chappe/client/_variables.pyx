"""Variables that a client publishes: 24-byte records, one STATUS frame a flush, no object an event (GS-037)."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy, memset

from chappe.client._outbox cimport put32, put64
from chappe.client._status cimport BOOL, BYTES, FLOAT, INT

from chappe.client.columns import type_code
from chappe.client.derived import encode_blocks

cdef extern from "<time.h>" nogil:
    """
    static long long chappe_client_mono(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long) now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    """
    int64_t monotonic_ns "chappe_client_mono"() noexcept


cdef uint64_t double_bits(double number) noexcept:
    cdef uint64_t bits
    memcpy(&bits, &number, 8)
    return bits


cdef class Variable:
    """A variable of this client; `publish` says at once whether the value was accepted (GS-034)."""

    def __init__(self, ClientCore core not None, publisher, name, type="float", rate=(0, 1), priority=3, options=0, *,
                 slowest_ns=0, minimum_ns=0, derived=(), encoder=None):
        code = type_code(publisher, name, type)
        if not 0 <= options or not options + len(derived) <= 255:
            raise ValueError(f"a record has 0 to 255 option blocks, not {options + len(derived)}")
        if options and code != BYTES:
            raise ValueError(f"option blocks carry the rest of a bytes value; {publisher}/{name} is of type {type}")
        self.core = core
        self.publisher = publisher
        self.name = name
        self.type = type
        self.code = code
        self.slowest_ns = slowest_ns
        self.minimum_ns = minimum_ns
        self.derived = tuple(derived)
        self.encoder = encoder
        self.special = bool(minimum_ns or derived or encoder is not None)
        self.last_ns = -(<int64_t> 1 << 62)
        self.rate = rate
        self.priority = priority
        self.options = options

    def granted(self, uint32_t variable_id):
        """The node knows it under this number."""
        self.id = variable_id
        self.active = True

    def publish(self, value, created=None):
        """Send one value, stamped `created` (ns since 1970 UTC) or now; False while the node is not reachable."""
        cdef int64_t stamp
        if not self.active:
            self.core.outbox.refused_status += 1
            return False
        stamp = self.core.now() if created is None else created
        if self.special:
            return self.publish_special(value, stamp)
        if self.code == BYTES:
            return self._publish_bytes(value, stamp, b"")
        return self.put(stamp, self.bits_of(value))

    cdef int64_t mono(self) noexcept:
        return monotonic_ns() if self.core.live_clock else self.core.clocks.mono_ns

    cdef object publish_special(self, object value, int64_t stamp):
        """Publish what has a least time between two (GS-033), derived values (GS-036) or a user type (GS-021)."""
        cdef unsigned char head[8]
        cdef uint64_t bits
        cdef bytes raw, tail
        cdef int64_t now = self.mono()
        cdef int place
        if self.minimum_ns and now - self.last_ns < self.minimum_ns:
            self.early += 1
            return False
        if self.encoder is not None:
            raw = self.encoder(value)
        elif self.code == BYTES:
            raw = value
        else:
            bits = self.bits_of(value)
            for place in range(8):
                head[place] = (bits >> (56 - 8 * place)) & 255
            raw = (<char*> head)[:8]
        self._check_length(raw)
        tail = encode_blocks(self.derived, value, stamp) if self.derived else b""
        if self.minimum_ns and now - self.last_ns < self.minimum_ns:
            self.early += 1  # another thread published meanwhile
            return False
        last_ns, self.last_ns = self.last_ns, now
        accepted = self._publish_bytes(raw, stamp, tail)
        if not accepted:
            self.last_ns = last_ns
        return accepted

    cdef uint64_t bits_of(self, object value) except? 0:
        if self.code == FLOAT:
            return double_bits(value)
        if self.code == INT:
            return <uint64_t> <int64_t> value
        return (<uint64_t> 1) << 56 if value else 0

    cdef bint put(self, int64_t created, uint64_t bits) except -1:
        cdef unsigned char* place = self.core.outbox.status_record(24) if self.active else NULL
        if place == NULL:
            return False
        put64(place, <uint64_t> created)
        put32(place + 8, self.id)
        put32(place + 12, 0)
        put64(place + 16, bits)
        if not self.core.scheduled:
            self.core.mark()
        return True

    def _check_length(self, bytes value not None):
        if len(value) > 8 + 24 * self.options:
            raise ValueError(
                f"the value has {len(value)} bytes, {self.publisher}/{self.name} takes {8 + 24 * self.options}: "
                "register it with a larger length= or more option blocks"
            )

    def _publish_bytes(self, bytes value not None, int64_t stamp, bytes tail not None):
        cdef unsigned char* place
        cdef Py_ssize_t first = min(8, len(value))
        cdef Py_ssize_t whole = 24 + 24 * self.options + len(tail)
        self._check_length(value)
        place = self.core.outbox.status_record(whole) if self.active else NULL
        if place == NULL:
            return False
        memset(place, 0, whole)
        put64(place, <uint64_t> stamp)
        put32(place + 8, self.id)
        place[12] = <unsigned char> (whole // 24 - 1)
        memcpy(place + 16, PyBytes_AS_STRING(value), first)
        memcpy(place + 24, PyBytes_AS_STRING(value) + first, len(value) - first)
        memcpy(place + whole - len(tail), PyBytes_AS_STRING(tail), len(tail))
        self.core.mark()
        return True

    def publish_array(self, values, created):
        """Send a series: float64 or int64 `values` and int64 `created` of one length; how many were accepted."""
        cdef const double[::1] numbers
        cdef const int64_t[::1] integers
        cdef const int64_t[::1] stamps = created
        cdef Py_ssize_t row
        if not self.active:
            return 0
        if self.special:
            _same_length(len(values), stamps.shape[0])
            return sum(self.publish(value, stamp) for value, stamp in zip(values, created))
        if self.code == FLOAT:
            numbers = values
            _same_length(numbers.shape[0], stamps.shape[0])
            for row in range(numbers.shape[0]):
                if not self.put(stamps[row], double_bits(numbers[row])):
                    return row
        elif self.code == INT:
            integers = values
            _same_length(integers.shape[0], stamps.shape[0])
            for row in range(integers.shape[0]):
                if not self.put(stamps[row], <uint64_t> integers[row]):
                    return row
        else:
            raise TypeError(f"publish_array is for float and int; {self.publisher}/{self.name} is of type {self.type}")
        return stamps.shape[0]

    def withdraw(self):
        """Stop publishing it. Awaitable."""
        return self.owner.withdraw(self)

    def __repr__(self):
        return f"Variable({self.publisher}/{self.name}, type={self.type!r}, id={self.id})"


cdef class VariableGroup:
    """Variables of one type that are published together, one value each."""

    def __init__(self, list variables not None):
        cdef Variable variable
        if not variables:
            raise ValueError("a group has at least one variable")
        self.variables = variables
        self.core = (<Variable> variables[0]).core
        for variable in variables:
            if variable.code != (<Variable> variables[0]).code or variable.code in (BOOL, BYTES):
                raise TypeError("the variables of a group are all float or all int")
            if variable.special:
                raise TypeError(f"{variable.publisher}/{variable.name} has derived values or a minimum: not in a group")

    def publish_array(self, values, created=None):
        """Send `values[i]` for the i-th variable, all stamped `created` or now; how many were accepted."""
        cdef const double[::1] numbers
        cdef const int64_t[::1] integers
        cdef Py_ssize_t row, size = len(self.variables), accepted = 0
        cdef Variable variable = <Variable> self.variables[0]
        cdef int64_t stamp = self.core.now() if created is None else created
        cdef bint floats = variable.code == FLOAT
        if floats:
            numbers = values
            _same_length(numbers.shape[0], size)
        else:
            integers = values
            _same_length(integers.shape[0], size)
        for row in range(size):
            variable = <Variable> self.variables[row]
            if not variable.active:
                continue
            if variable.put(stamp, double_bits(numbers[row]) if floats else <uint64_t> integers[row]):
                accepted += 1
        return accepted

    def __len__(self):
        return len(self.variables)


def _same_length(Py_ssize_t values, Py_ssize_t expected):
    if values != expected:
        raise ValueError(f"{values} values do not fit {expected} places")
