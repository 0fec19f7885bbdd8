"""How long the turns of a uvloop take: all that runs between two waits for events, and so what forwarding waits for.

libuv calls a check handle once in each turn and counts the time that it spends waiting. A turn costs two readings of
the clock more than without. uvloop links libuv into itself and exports its functions; they are looked up there.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from cpython.pycapsule cimport PyCapsule_GetPointer

from uvloop import loop as _uvloop

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW, RTLD_NOLOAD

cdef extern from *:
    """
    typedef void (*chappe_uv_callback)(void*);
    typedef int (*chappe_uv_init)(void*, void*);
    typedef int (*chappe_uv_start)(void*, chappe_uv_callback);
    typedef int (*chappe_uv_configure)(void*, int, ...);
    typedef void (*chappe_uv_close)(void*, chappe_uv_callback);
    typedef uint64_t (*chappe_uv_time)(void*);
    typedef uint64_t (*chappe_uv_clock)(void);
    typedef size_t (*chappe_uv_size)(int);
    typedef void (*chappe_uv_unref)(void*);
    static chappe_uv_init uv_check_init_;
    static chappe_uv_start uv_check_start_;
    static chappe_uv_configure uv_loop_configure_;
    static chappe_uv_close uv_close_;
    static chappe_uv_time uv_metrics_idle_time_;
    static chappe_uv_clock uv_hrtime_;
    static chappe_uv_size uv_handle_size_;
    static chappe_uv_unref uv_unref_;
    static int chappe_uv_find(void* library) {
        uv_check_init_ = (chappe_uv_init) dlsym(library, "uv_check_init");
        uv_check_start_ = (chappe_uv_start) dlsym(library, "uv_check_start");
        uv_loop_configure_ = (chappe_uv_configure) dlsym(library, "uv_loop_configure");
        uv_close_ = (chappe_uv_close) dlsym(library, "uv_close");
        uv_metrics_idle_time_ = (chappe_uv_time) dlsym(library, "uv_metrics_idle_time");
        uv_hrtime_ = (chappe_uv_clock) dlsym(library, "uv_hrtime");
        uv_handle_size_ = (chappe_uv_size) dlsym(library, "uv_handle_size");
        uv_unref_ = (chappe_uv_unref) dlsym(library, "uv_unref");
        return uv_check_init_ && uv_check_start_ && uv_loop_configure_ && uv_close_ && uv_metrics_idle_time_
            && uv_hrtime_ && uv_handle_size_ && uv_unref_;
    }
    typedef struct {
        void* loop;
        uint64_t ended;      /* clock at the end of the last turn */
        uint64_t idle;       /* waited until then */
        uint64_t longest;
        uint64_t recent;     /* the longest since it was last taken */
        uint64_t turns;
        uint64_t busy;       /* of all turns together */
        uint64_t counts[16]; /* turns by the bucket that they fall into */
        const uint64_t* bounds;
        int buckets;
    } chappe_turns;
    /* Behind the handle: where it is depends on the size of a handle, which is libuv's own matter. */
    static chappe_turns* chappe_turns_of(void* handle) {
        return (chappe_turns*) ((char*) handle + (uv_handle_size_(2) + 15) / 16 * 16);
    }
    static void chappe_turn_over(void* handle) {
        chappe_turns* turns = chappe_turns_of(handle);
        uint64_t now = uv_hrtime_(), idle = uv_metrics_idle_time_(turns->loop);
        uint64_t passed = now - turns->ended, waited = idle - turns->idle;
        uint64_t took = passed > waited ? passed - waited : 0;
        int bucket = 0;
        turns->ended = now;
        turns->idle = idle;
        while (bucket < turns->buckets && took > turns->bounds[bucket]) bucket++;
        turns->counts[bucket]++;
        turns->turns++;
        turns->busy += took;
        if (took > turns->longest) turns->longest = took;
        if (took > turns->recent) turns->recent = took;
    }
    """
    ctypedef struct chappe_turns:
        void* loop
        uint64_t ended, idle, longest, recent, turns, busy
        uint64_t* counts
        const uint64_t* bounds
        int buckets
    int chappe_uv_find(void* library) nogil
    chappe_turns* chappe_turns_of(void* handle) nogil
    ctypedef void (*chappe_uv_callback)(void*) noexcept nogil
    void chappe_turn_over(void* handle) noexcept nogil
    int uv_check_init_(void* loop, void* handle) nogil
    int uv_check_start_(void* handle, chappe_uv_callback callback) nogil
    int uv_loop_configure_(void* loop, int option) nogil
    void uv_close_(void* handle, chappe_uv_callback callback) nogil
    uint64_t uv_metrics_idle_time_(void* loop) nogil
    uint64_t uv_hrtime_() nogil
    size_t uv_handle_size_(int kind) nogil
    void uv_unref_(void* handle) nogil

cdef enum:
    UV_CHECK = 2
    UV_METRICS_IDLE_TIME = 1
    BUCKETS = 11

cdef uint64_t bounds_ns[BUCKETS]
bounds_ns[:] = [
    100_000, 250_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000,
    1_000_000_000,
]

BOUNDS_S = tuple(bounds_ns[i] / 1e9 for i in range(BUCKETS))

cdef void* _library = dlopen(_uvloop.__file__.encode(), RTLD_NOW | RTLD_NOLOAD)
cdef bint _found = _library != NULL and chappe_uv_find(_library) != 0


cdef class LoopTurns:
    """Measures the turns of a running uvloop from now until `close`; RuntimeError if it is another kind of loop."""

    cdef void* handle

    def __init__(self, loop):
        if not _found or not isinstance(loop, _uvloop.Loop):
            raise RuntimeError("only the turns of a uvloop can be measured")
        if self.handle != NULL:
            raise RuntimeError("it measures already")
        cdef void* uv = PyCapsule_GetPointer(_uvloop.libuv_get_loop_t_ptr(loop), NULL)
        cdef size_t size = (uv_handle_size_(UV_CHECK) + 15) // 16 * 16
        self.handle = calloc(1, size + sizeof(chappe_turns))
        if self.handle == NULL:
            raise MemoryError
        cdef chappe_turns* turns = chappe_turns_of(self.handle)
        turns.loop = uv
        turns.bounds = bounds_ns
        turns.buckets = BUCKETS
        uv_loop_configure_(uv, UV_METRICS_IDLE_TIME)
        uv_check_init_(uv, self.handle)
        uv_check_start_(self.handle, chappe_turn_over)
        uv_unref_(self.handle)
        self.restart()

    def restart(self):
        """Forget what was measured, the turn that runs now included."""
        cdef chappe_turns* turns = self._turns()
        cdef int i
        turns.longest = turns.recent = turns.turns = turns.busy = 0
        for i in range(BUCKETS + 1):
            turns.counts[i] = 0
        turns.ended = uv_hrtime_()
        turns.idle = uv_metrics_idle_time_(turns.loop)

    @property
    def longest_ns(self):
        """The longest turn of all."""
        return self._turns().longest

    @property
    def recent_longest_ns(self):
        """The longest turn since the last `take_recent`."""
        return self._turns().recent

    def take_recent(self):
        """The longest turn since this was last called."""
        cdef chappe_turns* turns = self._turns()
        cdef uint64_t longest = turns.recent
        turns.recent = 0
        return longest

    @property
    def count(self):
        """How many turns there were."""
        return self._turns().turns

    @property
    def busy_ns(self):
        """How long all of them took together."""
        return self._turns().busy

    def counts(self):
        """How many turns took no longer than each of BOUNDS_S and longer than the one before; the last: longer."""
        cdef chappe_turns* turns = self._turns()
        return [turns.counts[i] for i in range(BUCKETS + 1)]

    def close(self):
        """Measure no more; the loop frees the handle in its next turn, so let it have one before it is closed."""
        if self.handle != NULL:
            uv_close_(self.handle, free)
            self.handle = NULL

    cdef chappe_turns* _turns(self) except NULL:
        if self.handle == NULL:
            raise RuntimeError("it is closed")
        return chappe_turns_of(self.handle)
