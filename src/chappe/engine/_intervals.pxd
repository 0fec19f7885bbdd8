"""Rounds and intervals: exact arithmetic on rational publishing rates (GS-060)."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>

    /* floor((created * num + den / 2) / den); num <= den keeps the result in 64 bits. */
    static inline int64_t chappe_round_wide(int64_t created, int64_t num, int64_t den) {
        __int128 scaled = (__int128)created * num + den / 2;
        __int128 quotient = scaled / den;
        if (scaled < 0 && quotient * den != scaled) quotient -= 1;
        return (int64_t)quotient;
    }

    /* Whole periods in an interval of `wanted` nanoseconds, at least one; -1 if above 2**31. */
    static inline int64_t chappe_periods(int64_t wanted, int64_t num, int64_t den) {
        __int128 periods = ((__int128)wanted * num + num - 1) / den;
        if (num == 0 || wanted == 0 || periods < 1) return 1;
        return periods > ((__int128)1 << 31) ? -1 : (int64_t)periods;
    }

    static inline int64_t chappe_round(int64_t created, int64_t num, int64_t den) {
        int64_t shifted, quotient;
        if (num != 1 || __builtin_add_overflow(created, den / 2, &shifted)) return chappe_round_wide(created, num, den);
        quotient = shifted / den;
        return quotient - (shifted < 0 && quotient * den != shifted);
    }

    static inline int64_t chappe_stamp(const unsigned char *record) {
        uint64_t raw;
        __builtin_memcpy(&raw, record, 8);
        return (int64_t)__builtin_bswap64(raw);
    }

    static inline uint32_t chappe_variable(const unsigned char *record) {
        uint32_t raw;
        __builtin_memcpy(&raw, record + 8, 4);
        return __builtin_bswap32(raw);
    }
    """
    int64_t round_of "chappe_round"(int64_t created, int64_t num, int64_t den) noexcept nogil
    int64_t periods_of "chappe_periods"(int64_t wanted, int64_t num, int64_t den) noexcept nogil
    int64_t stamp_of "chappe_stamp"(const unsigned char* record) noexcept nogil
    uint32_t variable_of "chappe_variable"(const unsigned char* record) noexcept nogil


cdef inline uint64_t magnitude(int64_t number) noexcept nogil:
    """The distance from zero: `round mod m == 0` does not depend on the sign, and unsigned division is faster."""
    return <uint64_t> number if number >= 0 else -<uint64_t> number


cdef inline int class_of(int priority) noexcept nogil:
    """The queue of a priority: 0 is alert (0), 1-2 high (1), 3-4 normal (2), 5-6 background (3)."""
    return (priority + 1) >> 1
