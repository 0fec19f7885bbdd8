"""What may be a topic, a pattern or a group name: every text from outside passes here once."""

from libc.string cimport memchr, memcmp

from chappe.errors import ChappeError


class TopicError(ChappeError, ValueError):
    """A topic, pattern or group name cannot be used: says what is wrong with it and how to write it."""


cdef enum:
    EMPTY = 1
    TOO_LONG = 2
    EMPTY_LEVEL = 3
    WILDCARD = 4
    NUL = 5
    TOO_DEEP = 6
    NOT_UTF8 = 7
    PLUS_PLACE = 8
    HASH_PLACE = 9
    KIND = 10
    INTEGER_SIZE = 11
    LONG_SIZE = 12
    ADDRESS_FORM = 13

_REASONS = {
    EMPTY: "is empty; write at least one level, such as 'plant/line1/temperature'",
    TOO_LONG: "is longer than 1024 bytes of UTF-8; shorten it",
    EMPTY_LEVEL: "has an empty level; remove '/' at its start or end and the doubled ones",
    WILDCARD: "contains '+' or '#', which only subscriptions may use; publish to one whole topic",
    NUL: "contains a NUL character; remove it",
    TOO_DEEP: "has more than 64 levels; join some of them",
    NOT_UTF8: "is not UTF-8; encode its text as UTF-8",
    PLUS_PLACE: "has a '+' inside a level; '+' stands for one whole level, as in 'plant/+/temperature'",
    HASH_PLACE: "has a '#' that is not the whole last level; '#' stands for all the rest, as in 'plant/#'",
    KIND: "is of an unknown kind; use 's' (string), 'i' (32-bit integer), 'l' (64-bit integer) or 'n' (address)",
    INTEGER_SIZE: "is not an integer topic; write a whole number from -2147483648 to 2147483647 (4 bytes big-endian)",
    ADDRESS_FORM: "is no address; write NODE or UNIT/NODE, or one that an inbox was given",
    LONG_SIZE: "is not a long topic; write a whole number from -2^63 to 2^63 - 1 (8 bytes big-endian)",
}


cdef Py_ssize_t _character(const unsigned char* text, Py_ssize_t left) noexcept nogil:
    """Length of the UTF-8 character at text, 0 if it is none: overlong forms and surrogates are none."""
    cdef unsigned char first = text[0]
    cdef unsigned char low = 0x80, high = 0xBF
    cdef Py_ssize_t size, i
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if size > left:
        return 0
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if text[1] < low or text[1] > high:
        return 0
    for i in range(2, size):
        if text[i] & 0xC0 != 0x80:
            return 0
    return size


cdef int _wildcard_fault(const unsigned char* key, Py_ssize_t at, Py_ssize_t size, bint pattern) noexcept nogil:
    cdef bint begins = at == 0 or key[at - 1] == c'/'
    cdef bint last = at + 1 == size
    if not pattern:
        return WILDCARD
    if key[at] == c'#':
        return 0 if begins and last else HASH_PLACE
    return 0 if begins and (last or key[at + 1] == c'/') else PLUS_PLACE


cdef int _address_fault(const unsigned char* key, Py_ssize_t size, bint pattern) noexcept nogil:
    """Of an address whose text is sound: what stands behind its '@'.

    A pattern may be `NAME@`, everything at the node of that name, or `@`, everything at all others.
    """
    cdef const unsigned char* at = <const unsigned char*> memchr(key, c'@', size)
    cdef const unsigned char* end = key + size
    cdef Py_ssize_t left
    if at == NULL:
        return 0
    left = end - at - 1
    if left == 0:
        return 0 if pattern and memchr(key, c'/', size) == NULL else ADDRESS_FORM
    if at == key or at[-1] == c'/':
        return ADDRESS_FORM
    if left == 8 + ID_DIGITS and memcmp(at + 1, b"confirm:", 8) == 0:
        at += 8
    elif left != ID_DIGITS:
        return ADDRESS_FORM
    at += 1
    while at < end:
        if not (c'0' <= at[0] <= c'9' or c'a' <= at[0] <= c'f'):
            return ADDRESS_FORM
        at += 1
    return 0


cdef int topic_fault(const unsigned char* key, Py_ssize_t size, int kind, bint pattern) noexcept nogil:
    cdef Py_ssize_t at = 0, length
    cdef int levels = 1, fault
    if kind == INTEGER:
        return 0 if size == 4 else INTEGER_SIZE
    if kind == LONG:
        return 0 if size == 8 else LONG_SIZE
    if kind != STRING and kind != ADDRESS:
        return KIND
    if size == 0:
        return EMPTY
    if size > MAX_BYTES:
        return TOO_LONG
    while at < size:
        if key[at] == c'/':
            if at == 0 or at + 1 == size or key[at + 1] == c'/':
                return EMPTY_LEVEL
            levels += 1
            if levels > MAX_LEVELS:
                return TOO_DEEP
        elif key[at] == c'+' or key[at] == c'#':
            fault = _wildcard_fault(key, at, size, pattern) if kind == STRING else ADDRESS_FORM
            if fault:
                return fault
        elif key[at] == 0:
            return NUL
        length = _character(key + at, size - at)
        if length == 0:
            return NOT_UTF8
        at += length
    return _address_fault(key, size, pattern) if kind == ADDRESS else 0


cdef bytes shown_key(const unsigned char* key, Py_ssize_t size, int kind):
    cdef const unsigned char* at = <const unsigned char*> memchr(key, c'@', size) if kind == ADDRESS else NULL
    return <bytes> key[:size] if at == NULL else <bytes> key[:at - key] + b"@\xe2\x80\xa6"


cdef str fault_text(int fault, object shown):
    text = repr(shown)
    return (text if len(text) <= 80 else text[:76] + "...") + " " + _REASONS[fault]


def check_topic(bytes topic not None, str kind="s"):
    """Return if the bytes may be published to, else raise TopicError."""
    cdef int fault = topic_fault(topic, len(topic), ord(kind) if len(kind) == 1 else 0, False)
    if fault:
        shown = shown_key(topic, len(topic), ord(kind) if len(kind) == 1 else 0)
        if kind in ("s", "n"):
            shown = shown.decode("utf-8", "backslashreplace")
        raise TopicError("topic " + fault_text(fault, shown))


def check_pattern(str pattern not None, str kind="s"):
    """Return if the text may be subscribed to, else raise TopicError; integer and long topics as decimal text."""
    encode_key(pattern, kind, True)


def encode_key(topic, str kind, bint pattern=False):
    """Bytes of a topic or pattern as it stands in frames and in the table; raises TopicError if it may not."""
    cdef bytes key
    cdef str what = "pattern" if pattern else "topic"
    cdef int fault
    if kind == "s" or kind == "n":
        if not isinstance(topic, str):
            raise TopicError(f"{what} {topic!r} is not text; for a number give its kind: 'i' or 'l'")
        try:
            key = (<str>topic).encode()
        except UnicodeEncodeError:
            raise TopicError(f"{what} " + fault_text(NOT_UTF8, topic)) from None
        fault = topic_fault(key, len(key), ord(kind), pattern)
        topic = shown_key(key, len(key), ord(kind)).decode()
    elif kind == "i" or kind == "l":
        fault = INTEGER_SIZE if kind == "i" else LONG_SIZE
        key = b""
        digits = str(topic)
        if len(digits) <= 20 and digits.isascii() and digits.removeprefix("-").isdigit():
            try:
                key = int(digits).to_bytes(4 if kind == "i" else 8, "big", signed=True)
                fault = 0
            except OverflowError:
                pass
    else:
        fault = KIND
        key = b""
    if fault:
        raise TopicError(f"{what} " + fault_text(fault, topic))
    return key


def encode_group(str group not None):
    """Bytes of a group name, empty for none; raises TopicError if it is too long or holds a NUL."""
    try:
        name = group.encode()
    except UnicodeEncodeError:
        raise TopicError(f"group {group!r} is not UTF-8; use valid text") from None
    if len(name) > MAX_GROUP_BYTES:
        raise TopicError(f"group {group[:60]!r}... is longer than 255 bytes of UTF-8; shorten it")
    if b"\0" in name:
        raise TopicError(f"group {group!r} contains a NUL character; remove it")
    return name


def decode_key(bytes key not None, str kind):
    """Text of a topic or pattern: what encode_key made its bytes from, numbers as decimal text."""
    return key.decode() if kind == "s" or kind == "n" else str(int.from_bytes(key, "big", signed=True))
