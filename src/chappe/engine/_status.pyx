"""The status table: which ports get a record, decided by its variable, its stamp and the current mode alone.

Changing methods check all they are given before they change anything. Port lists handed out by `decide` stay valid
until the next changing call.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from math import gcd

from chappe.engine._entries cimport (
    AWAITED, MAX_PORT, MODES, SLOTS, WINDOW, EdgeEntry, Entry, EntryTable, Path, Terms, Vector, Window, find_entry,
    interval_of, permits, rate_of, terms_of, vector_of,
)
from chappe.engine._intervals cimport periods_of, stamp_of, variable_of
from chappe.engine._memory cimport MemoryBudget, meter_resize_or_raise
from chappe.engine._sets cimport Form, Rate
from chappe.engine._store cimport pool_at

from chappe.errors import ChappeError

# What is not flooded is not silenced by a stamp ahead of all others, but holders of the newest value wait for it: more
# than any clock is wrong by, so that a publisher whose clock is fast is still heard.
cdef uint64_t UNFLOODED_NS = 58_000_000_000

cdef int64_t INT64_MAX = 0x7fffffffffffffff


class TableError(ChappeError, ValueError):
    """A change of the status table makes no sense; the table is as it was."""


class UnknownVariableError(ChappeError, KeyError):
    """The variable has no entry in this table."""

    __str__ = Exception.__str__     # KeyError would put the text in quotes


cdef inline int _admit(Window* window, int64_t created) noexcept:
    """Enter a stamp into the window of the last accepted ones, or say why not."""
    cdef uint32_t i
    cdef bint older = window.count == WINDOW
    if window.count == 0 or created > window.newest:
        window.newest = created
    else:
        for i in range(window.count):
            if window.stamps[i] == created:
                return DUPLICATE
            older = older and created < window.stamps[i]
        if older:
            return STALE
    window.stamps[window.next] = created
    window.next = (window.next + 1) % WINDOW
    if window.count < WINDOW:
        window.count += 1
    return FORWARD


cdef class StatusTable(EntryTable):
    """Variable -> output ports with minimal intervals per mode; `layout` chooses how sets are evaluated.

    With `edge` the newest record of each variable is kept for watchers that come later. `slot` is the current mode,
    or 16 for the temporary table of a mode change: a switch is one assignment (GS-112).
    """

    def __cinit__(self, str layout="close", bint edge=False, seed: int = 0, MemoryBudget budget=None):
        self.future_tolerance_ns = 2_000_000_000

    def __dealloc__(self):
        free(self.levels)
        free(self.scope)

    cdef PortList* decide(self, int port, const unsigned char* record, Py_ssize_t size, int64_t wall_ns,
                          int* verdict) noexcept:
        """What happens to a record: a list of ports, or NULL and the reason."""
        cdef Entry* entry = find_entry(self, variable_of(record))
        cdef Vector* vector
        cdef PortList* found = NULL
        cdef int64_t created
        cdef uint64_t ahead
        cdef uint32_t chosen = 0
        cdef int level = 0
        cdef bint awaited
        if entry == NULL:
            verdict[0] = UNKNOWN
            return NULL
        created = stamp_of(record)
        vector = vector_of(self, entry)
        if vector != NULL and <uint32_t> self.slot < SLOTS:
            chosen = vector.sets[self.slot]
            level = vector.levels[self.slot]
        if not permits(self, entry, port) and not (level and <uint32_t> port < self.n_levels and self.levels[port]):
            verdict[0] = NOT_PERMITTED if chosen or level or vector == NULL else NOT_IN_MODE
            return NULL
        if created > wall_ns and (level or wall_ns > 0):  # an engine that was told no time cannot judge
            ahead = <uint64_t> created - <uint64_t> wall_ns
            if ahead > <uint64_t> self.future_tolerance_ns + (0 if level else UNFLOODED_NS):
                verdict[0] = FUTURE
                return NULL
        if chosen == 0 and level == 0:
            if self.edge:       # nobody wants it yet, but the first watcher will want to see the present value
                self.keep(entry, record, size)
            if vector == NULL:  # in no mode
                verdict[0] = FORWARD
                return &self.nobody
            verdict[0] = NOT_IN_MODE
            return NULL
        if entry.window:
            verdict[0] = _admit(<Window*> pool_at(self.windows, entry.window), created)
            if verdict[0] != FORWARD:
                return NULL
        awaited = entry.last_size == AWAITED
        if self.edge:
            self.keep(entry, record, size)
        if chosen and awaited:
            found = self.forwarding.whole(chosen)
        elif chosen:
            found = self.forwarding.choose(chosen, entry.rate, rate_of(self, entry), created)
        verdict[0] = FORWARD
        if level:
            found = self.forwarding.flood(found, self.scope, self.n_scope, self.levels, self.n_levels, level)
            verdict[0] = FLOODED
        return found

    cdef PortList* decide_run(self, int port, const unsigned char* records, uint32_t size, int64_t wall_ns,
                              int* verdict, uint32_t* used, uint32_t* count) noexcept:
        """The decision on the first record, and the bytes and number of records from there on that share it.

        Neighbours mostly have the same inputs, mode vector and, where the list depends on them, rate and stamp.
        """
        cdef const unsigned char* record = records
        cdef const unsigned char* end = records + size
        cdef PortList* found
        cdef Entry* first
        cdef Entry* entry
        cdef int64_t created, stamp = stamp_of(records)
        cdef uint64_t tolerated = <uint64_t> self.future_tolerance_ns + UNFLOODED_NS
        cdef bint timed, awaited
        record += 24 * (1 + <uint32_t> record[12])
        first = find_entry(self, variable_of(records))
        awaited = first != NULL and first.last_size == AWAITED
        found = self.decide(port, records, <Py_ssize_t> (record - records), wall_ns, verdict)
        count[0] = 1
        used[0] = <uint32_t> (record - records)
        if found == NULL or verdict[0] != FORWARD:
            return found
        if first.window or awaited:
            return found
        timed = found != &self.nobody and not self.forwarding.timeless(vector_of(self, first).sets[self.slot])
        while end - record >= 24 and record[12] == 0:
            entry = find_entry(self, variable_of(record))
            if entry == NULL or entry.vector != first.vector or entry.inputs != first.inputs or entry.window:
                break
            created = stamp_of(record)
            if timed and (created != stamp or entry.rate != first.rate or entry.last_size == AWAITED):
                break
            if created > wall_ns > 0 and <uint64_t> created - <uint64_t> wall_ns > tolerated:
                break
            if self.edge and (entry.last_size <= AWAITED or created >= stamp_of((<EdgeEntry*> entry).head)):
                memcpy((<EdgeEntry*> entry).head, record, 24)
                entry.last_size = 24
            record += 24
            count[0] += 1
        used[0] = <uint32_t> (record - records)
        return found

    def set_variable(self, variable, num, den, inputs=None):
        """Enter a variable or change its rate of num/den events a nanosecond in place; inputs None keeps them."""
        cdef Entry* entry
        cdef uint32_t index
        cdef Path* path
        cdef int mode
        cdef Terms* terms
        if not 1 <= variable <= 0xffffffff:
            raise TableError(f"variable {variable} is not between 1 and 2**32 - 1; use an id that was issued for it")
        if den <= 0 or num < 0:
            raise TableError(f"rate {num}/{den} of variable {variable} is not a rate; give num >= 0 and den > 0")
        if num > den or den > INT64_MAX:
            raise TableError(
                f"rate {num}/{den} of variable {variable} is out of range; give events per nanosecond, at most 1/1"
            )
        ports = None if inputs is None else sorted({_port(port) for port in inputs})
        shared = gcd(num, den)      # in lowest terms more rates have num == 1, which 64 bits can divide
        num, den = num // shared, den // shared
        entry = find_entry(self, variable)
        index = entry.paths if entry != NULL else 0
        while index:
            path = <Path*> pool_at(self.paths, index)
            terms = terms_of(self, path)
            for mode in range(MODES):
                if terms.modes >> mode & 1:
                    _periods(variable, path.number, interval_of(terms, mode), num, den)
            index = path.next
        self.forwarding.changing()
        if entry == NULL:
            entry = self.make(variable)
            self.set_rate(entry, num, den)
            self.count_entry(variable)
        else:
            self.set_rate(entry, num, den)
        if ports is not None:
            self.put_inputs(entry, ports)
        if entry.paths:
            self.rebuild(entry, NULL)

    def add_input(self, variable, port):
        """Permit one more input port."""
        cdef Entry* entry = self._known(variable)
        self.forwarding.changing()
        self.put_inputs(entry, sorted({*self.inputs_of(entry), _port(port)}))

    def remove_input(self, variable, port):
        """Permit an input port no longer; True if it was permitted."""
        cdef Entry* entry = self._known(variable)
        ports = self.inputs_of(entry)
        if port not in ports:
            return False
        self.forwarding.changing()
        ports.remove(port)
        self.put_inputs(entry, ports)
        return True

    def drop_variable(self, variable):
        """Forget a variable with its paths, inputs and flooding."""
        self._known(variable)
        self.forwarding.changing()
        self.drop(variable)

    def setup_path(self, variable, port, path, intervals, priorities, modes):
        """Add a path or change it in place; return its interval in periods in the lowest of its modes (GS-073)."""
        cdef Entry* entry = self._known(variable)
        cdef Rate* rate = rate_of(self, entry)
        cdef Terms terms
        cdef int mode
        where = f"path {path} of variable {variable}"
        _port(port)
        if not 0 <= path <= 0xffffffff:
            raise TableError(f"{where}: a path id has 32 bits; give 0 to 2**32 - 1")
        _check_modes(modes, where)
        for name, values in (("intervals", intervals), ("priorities", priorities)):
            if len(values) not in (1, MODES):
                raise TableError(f"{where}: {len(values)} {name} given; give one for all modes or one for each of 16")
        for value in intervals:
            if not 0 <= value <= INT64_MAX:
                raise TableError(f"{where}: interval {value} ns is out of range; give 0 (every event) to 2**63 - 1")
        for value in priorities:
            if not 0 <= value <= 6:
                raise TableError(f"{where}: priority {value} is not known; give 0 (alert) to 6 (background)")
        lowest = 0
        memset(&terms, 0, sizeof(Terms))
        terms.modes = modes
        terms.n_intervals = len(intervals)
        for mode in range(MODES):
            if not modes >> mode & 1:
                continue
            wanted = intervals[mode] if terms.n_intervals > 1 else intervals[0]
            terms.priorities[mode] = priorities[mode] if len(priorities) > 1 else priorities[0]
            terms.intervals[mode if terms.n_intervals > 1 else 0] = wanted
            periods = _periods(variable, path, wanted, rate.num, rate.den)
            lowest = lowest or periods
        self.forwarding.changing()
        self.put_path(entry, path, port, &terms)
        self.rebuild(entry, NULL)
        return lowest

    def terminate_path(self, variable, path):
        """Remove a path, restoring intervals that it had swallowed (GS-067); False if there is no such path."""
        cdef Entry* entry = self._known(variable)
        if self.path_of(entry, path) == NULL:
            return False
        self.forwarding.changing()
        self.remove_paths(entry, path, -1)
        self.rebuild(entry, NULL)
        return True

    def set_flooding(self, variable, level, modes):
        """Flood a variable in these modes to ports of level 1 to `level`; enter it with `set_variable` first."""
        cdef Entry* entry = self._known(variable)
        cdef uint8_t levels[SLOTS]
        cdef int mode
        _check_modes(modes, f"flooding of variable {variable}")
        if not 1 <= level <= 255:
            raise TableError(f"flooding of variable {variable}: level {level} is not known; give 1 (own cloud) to 255")
        self._levels_of(entry, levels)
        for mode in range(MODES):
            if modes >> mode & 1:
                levels[mode] = level
        self.forwarding.changing()
        self.rebuild(entry, levels)

    def clear_flooding(self, variable, modes):
        """Route a variable by its paths again in these modes."""
        cdef Entry* entry = self._known(variable)
        cdef uint8_t levels[SLOTS]
        cdef int mode
        _check_modes(modes, f"flooding of variable {variable}")
        self._levels_of(entry, levels)
        for mode in range(MODES):
            if modes >> mode & 1:
                levels[mode] = 0
        self.forwarding.changing()
        self.rebuild(entry, levels)

    def set_level(self, port, level):
        """Put a port in the scope of floods of this level and above; 0 takes it out of all."""
        cdef uint32_t i, n = 0, room
        cdef void* moved
        _port(port)
        if not 0 <= level <= 255:
            raise TableError(f"level {level} of port {port} is out of range; give 0 (never flooded to) to 255")
        self.forwarding.changing()
        if port >= self.n_levels:
            if level == 0:
                return
            room = max(16, 2 * port)
            moved = meter_resize_or_raise(&self.meter, self.scope, self.n_levels * sizeof(uint32_t),
                                          room * sizeof(uint32_t))
            self.scope = <uint32_t*> moved
            moved = meter_resize_or_raise(&self.meter, self.levels, self.n_levels, room)
            self.levels = <uint8_t*> moved
            self.n_levels = room
        self.levels[<uint32_t> port] = level
        for i in range(self.n_levels):
            if self.levels[i]:
                self.scope[n] = i
                n += 1
        self.n_scope = n
        self.forwarding.scope(n)

    def remove_port(self, port, start, count):
        """Drop the paths and inputs of a port in the next `count` entries; the next start, or -1 at the end."""
        cdef int64_t variable = self.next_used(start)
        cdef Entry* entry
        cdef int left = count
        _port(port)
        _check_count(count)
        if start <= 0:
            self.set_level(port, 0)
        self.forwarding.changing()
        while variable >= 0 and left > 0:
            entry = find_entry(self, <uint32_t> variable)
            if permits(self, entry, port):
                self.put_inputs(entry, [other for other in self.inputs_of(entry) if other != port])
            if self.remove_paths(entry, -1, port):
                self.rebuild(entry, NULL)
            variable = self.next_used(variable + 1)
            left -= 1
        return variable

    def prepare(self, old, new, start, count):
        """Build slot 16 of the next `count` entries: paths of both modes, on the terms of the old (GS-112).

        Returns the next start, or -1 at the end. Entries changed later keep their slot 16 up to date by themselves.
        """
        cdef int64_t variable = self.next_used(start)
        cdef int left = count
        for mode in (old, new):
            if not 0 <= mode < MODES:
                raise TableError(f"mode {mode} does not exist; give 0 to {MODES - 1}")
        _check_count(count)
        if self.slot == MODES and (old, new) != (self.temporary_old, self.temporary_new):
            raise TableError("the temporary table is in use; switch to a mode before preparing another change")
        self.forwarding.changing()
        self.temporary_old, self.temporary_new = old, new
        while variable >= 0 and left > 0:
            self.rebuild(find_entry(self, <uint32_t> variable), NULL)
            variable = self.next_used(variable + 1)
            left -= 1
        return variable

    def last(self, variable):
        """The newest record accepted of a variable, or None."""
        cdef Entry* entry = find_entry(self, variable)
        cdef EdgeEntry* kept = <EdgeEntry*> entry
        if entry == NULL or entry.last_size <= AWAITED:
            return None
        if entry.last_size == 24:
            return kept.head[:24]
        return kept.head[:24] + kept.options[:entry.last_size - 24]

    def await_value(self, variable):
        """What was kept is not the present value: the next record is, and goes to all ports whatever their intervals.

        Only in a table at the edge; others keep nothing and filter every record.
        """
        if self.edge:
            self._known(variable).last_size = AWAITED

    def entries(self):
        """How many variables are in the table."""
        return self.n_entries

    def variables(self, start, count):
        """Up to `count` variable ids in ascending order from `start` on."""
        cdef int64_t variable = self.next_used(start)
        found = []
        while variable >= 0 and len(found) < count:
            found.append(variable)
            variable = self.next_used(variable + 1)
        return found

    def sets(self):
        """How many different forwarding sets exist."""
        return self.forwarding.sets.live

    def memory_bytes(self):
        """Bytes the table holds, without its Python objects."""
        return self.meter.bytes

    def describe(self, variable):
        """Rate, inputs, paths, and per mode ports with minimal intervals in periods and class, and flood levels."""
        cdef Entry* entry = self._known(variable)
        cdef Rate* rate = rate_of(self, entry)
        cdef Vector* vector = vector_of(self, entry)
        cdef uint32_t index = entry.paths
        cdef Path* path
        cdef int slot
        paths = {}
        while index:
            path = <Path*> pool_at(self.paths, index)
            paths[path.number] = path.port
            index = path.next
        modes, flooding, known = {}, {}, {}
        if vector != NULL:
            for slot in range(SLOTS):
                if vector.sets[slot]:
                    if vector.sets[slot] not in known:  # most modes share one
                        known[vector.sets[slot]] = self._describe_set(vector.sets[slot])
                    modes[slot] = known[vector.sets[slot]]
                if vector.levels[slot]:
                    flooding[slot] = vector.levels[slot]
        return {
            "variable": variable,
            "rate": (rate.num, rate.den),
            "inputs": self.inputs_of(entry),
            "paths": dict(sorted(paths.items())),
            "modes": modes,
            "flooding": flooding,
            "windowed": entry.window != 0,
        }

    cdef Entry* _known(self, object variable) except NULL:
        cdef Entry* entry = find_entry(self, variable) if 0 <= variable <= 0xffffffff else NULL
        if entry == NULL:
            raise UnknownVariableError(
                f"variable {variable} is not in the status table; enter it with set_variable first"
            )
        return entry

    cdef int _levels_of(self, Entry* entry, uint8_t* levels) except -1:
        cdef Vector* vector = vector_of(self, entry)
        memset(levels, 0, SLOTS)
        if vector != NULL:
            memcpy(levels, vector.levels, MODES)
        return 0

    cdef dict _describe_set(self, uint32_t index):
        cdef Form* form = <Form*> self.forwarding.sets.contents[index].form
        cdef uint32_t i, k
        ports = {}
        for i in range(form.n_ports):
            intervals = [form.intervals[k] for k in range(form.starts[i], form.starts[i + 1])]
            ports[form.items[i] >> 2] = {"intervals": intervals, "class": form.items[i] & 3}
        return ports


def _port(port):
    if not 0 <= port <= MAX_PORT:
        raise TableError(f"port {port} does not exist; give 0 to {MAX_PORT}")
    return port


def _check_modes(modes, where):
    if not 1 <= modes <= 0xffff:
        raise TableError(f"{where}: mode mask {modes} names no mode; set a bit for each of the 16 modes wanted")


def _check_count(count):
    if not 1 <= count <= 0x7fffffff:
        raise TableError(f"a slice of {count} entries makes no progress; give at least 1")


def _periods(variable, path, wanted, num, den):
    cdef int64_t periods = periods_of(wanted, num, den)
    if periods < 0:
        raise TableError(
            f"path {path} of variable {variable}: {wanted} ns are more than 2**31 periods at {num}/{den} events a "
            "nanosecond; ask for a shorter interval"
        )
    return periods
