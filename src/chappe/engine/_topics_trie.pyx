"""The subscriptions of a topic table: add, remove and match in a trie of levels.

Nodes have no maps of their own: one hash table finds (parent, level), so that a million nodes with one child each
cost no more than one node with a million. Subscriptions are in two chains, of their node and of their port, so
that a removal never searches. Four roots keep string, integer and long topics and addresses apart.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from chappe.engine._memory cimport meter_give, meter_take, raise_no_memory
from chappe.engine._topics_hash cimport (
    Link,
    hash_buckets,
    hash_bytes,
    hash_clear,
    hash_drop,
    hash_first,
    hash_init,
    hash_pair,
    hash_put,
    hash_reserve,
    store_give,
    store_init,
    store_shrink,
    store_take,
)
from chappe.engine._topics_names cimport ADDRESS, INTEGER, LONG, MAX_BYTES, MAX_LEVELS, STRING

cdef enum:
    PLUS = 1                     # the levels '+' and '#' are made first and never freed
    HASH = 2
    ROOTS = 4                    # nodes 1 to 4: string, integer, long, address
    MANY = 4096                  # stores above this many items give their memory back once the last one went
    FEW = 48                     # up to here insertion sort is quicker than eight histograms


cdef inline uint32_t _root(int kind) noexcept nogil:
    return 1 if kind == STRING else 2 if kind == INTEGER else 3 if kind == LONG else 4


cdef inline Py_ssize_t _end(const unsigned char* key, Py_ssize_t at, Py_ssize_t size, int kind) noexcept nogil:
    """Where the level that begins at `at` ends; a number or an address is one level whatever its bytes."""
    if kind != STRING:
        return size
    while at < size and key[at] != c'/':
        at += 1
    return at


cdef uint64_t* _sorted(uint64_t* keys, uint64_t* spare, uint32_t n) noexcept nogil:
    """The keys in order, in one of the two arrays: linear in n, and without calling the allocator as qsort may."""
    cdef uint32_t counts[8][256]
    cdef uint64_t key
    cdef uint64_t* swap
    cdef uint32_t i, j, digit, total, here
    if n <= FEW:
        for i in range(1, n):
            key = keys[i]
            j = i
            while j and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        return keys
    memset(counts, 0, sizeof(counts))
    for i in range(n):
        key = keys[i]
        for digit in range(8):
            counts[digit][(key >> (8 * digit)) & 255] += 1
    for digit in range(8):
        if counts[digit][(keys[0] >> (8 * digit)) & 255] == n:
            continue
        total = 0
        for i in range(256):
            here = counts[digit][i]
            counts[digit][i] = total
            total += here
        for i in range(n):
            key = keys[i]
            j = (key >> (8 * digit)) & 255
            spare[counts[digit][j]] = key
            counts[digit][j] += 1
        swap = keys
        keys = spare
        spare = swap
    return keys


cdef class Trie:
    """All subscriptions of one table; the table owns the meter and outlives its trie."""

    cdef int open(self, Meter* meter, uint64_t seed) except -1:
        cdef Node* root
        self.meter = meter
        self.seed = seed
        store_init(&self.levels, meter, sizeof(Level))
        store_init(&self.nodes, meter, sizeof(Node))
        store_init(&self.subs, meter, sizeof(Sub))
        store_init(&self.chains, meter, sizeof(Chain))
        hash_init(&self.level_index, meter)
        hash_init(&self.child_index, meter)
        hash_init(&self.sub_index, meter)
        hash_init(&self.port_index, meter)
        for _ in range(ROOTS):
            root = <Node*>self.nodes.items + store_take(&self.nodes, meter)
            memset(root, 0, sizeof(Node))
        if not self._new_level(b"+", 1) or not self._new_level(b"#", 1):
            raise_no_memory(meter.memory, "an empty topic table")
        (<Level*>self.levels.items + PLUS).refs = 1
        (<Level*>self.levels.items + HASH).refs = 1
        return 0

    def __dealloc__(self):
        cdef uint32_t bucket, number
        for bucket in range(hash_buckets(&self.level_index)):
            number = self.level_index.heads[bucket]
            while number:
                free((<Level*>self.levels.items + number).text)
                number = self.level_index.links[number].next
        free(self.levels.items)
        free(self.nodes.items)
        free(self.subs.items)
        free(self.chains.items)
        free(self.level_index.heads)
        free(self.level_index.links)
        free(self.child_index.heads)
        free(self.child_index.links)
        free(self.sub_index.heads)
        free(self.sub_index.links)
        free(self.port_index.heads)
        free(self.port_index.links)
        free(self.found if self.found < self.spare else self.spare)

    cdef int add(
        self, uint32_t port, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group, bint back
    ) noexcept:
        cdef uint32_t node = self._walk(key, size, kind, True)
        cdef uint32_t mark = group * 2 + back
        cdef uint32_t number
        cdef Sub* sub
        if not node:
            return -1
        number = self._sub(node, port, group)
        if number:
            sub = <Sub*>self.subs.items + number
            if sub.mark == mark:
                return UNCHANGED
            sub.mark = mark
            return UPDATED
        if self._link(node, port, mark) < 0:
            self._prune(node)
            return -1
        return ADDED

    cdef uint32_t find(
        self, uint32_t port, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group
    ) noexcept:
        cdef uint32_t node = self._walk(key, size, kind, False)
        return self._sub(node, port, group) if node else 0

    cdef void remove(self, uint32_t number) noexcept:
        cdef Sub* subs = <Sub*>self.subs.items
        cdef Sub sub = subs[number]
        cdef uint32_t at = self.chain(sub.port)
        cdef uint32_t h
        cdef Chain* chain = <Chain*>self.chains.items + at
        if sub.before:
            subs[sub.before].after = sub.after
        else:
            (<Node*>self.nodes.items + sub.node).head = sub.after
        if sub.after:
            subs[sub.after].before = sub.before
        if sub.port_before:
            subs[sub.port_before].port_after = sub.port_after
        else:
            chain.head = sub.port_after
        if sub.port_after:
            subs[sub.port_after].port_before = sub.port_before
        chain.count -= 1
        if chain.count == 0:
            hash_drop(&self.port_index, self.meter, hash_pair(self.seed, sub.port, 0), at)
            store_give(&self.chains, at)
        h = hash_pair(self.seed, sub.port, hash_pair(self.seed, sub.node, sub.mark >> 1))
        hash_drop(&self.sub_index, self.meter, h, number)
        store_give(&self.subs, number)
        self.count -= 1
        self._prune(sub.node)
        if self.count == 0 and self.subs.capacity > MANY:
            store_shrink(&self.subs, self.meter, 1)
            store_shrink(&self.chains, self.meter, 1)
            store_shrink(&self.nodes, self.meter, ROOTS + 1)
            store_shrink(&self.levels, self.meter, HASH + 1)
            hash_clear(&self.level_index, self.meter)
            hash_put(&self.level_index, self.meter, hash_bytes(self.seed, b"+", 1), PLUS)
            hash_put(&self.level_index, self.meter, hash_bytes(self.seed, b"#", 1), HASH)

    cdef uint32_t chain(self, uint32_t port) noexcept:
        cdef uint32_t h = hash_pair(self.seed, port, 0)
        cdef uint32_t at = hash_first(&self.port_index, h)
        cdef Link* links = self.port_index.links
        while at:
            self.meter.steps += 1
            if links[at].hash == h and (<Chain*>self.chains.items + at).port == port:
                return at
            at = links[at].next
        return 0

    cdef int match(self, const unsigned char* key, Py_ssize_t size, int kind) noexcept:
        cdef uint32_t levels[MAX_LEVELS]
        cdef uint32_t nodes[MAX_LEVELS + 2]       # depth first: one brother waits a level, at most
        cdef int depths[MAX_LEVELS + 2]
        cdef int waiting = 1, count = 0, depth
        cdef uint32_t node, child
        cdef Py_ssize_t at = 0, end
        self.nfound = 0
        if kind == ADDRESS:
            return self._match_address(key, size)
        while at < size:
            if count == MAX_LEVELS:
                return 0
            end = _end(key, at, size, kind)
            levels[count] = self._level(key + at, <uint32_t>(end - at))
            count += 1
            at = end + 1
        nodes[0] = _root(kind)
        depths[0] = 0
        while waiting:
            waiting -= 1
            node = nodes[waiting]
            depth = depths[waiting]
            self.meter.steps += 1
            if kind == STRING:
                child = self._child(node, HASH)
                if child and self._collect(child) < 0:
                    return -1
            if depth == count:
                if self._collect(node) < 0:
                    return -1
                continue
            if kind == STRING:
                child = self._child(node, PLUS)
                if child:
                    nodes[waiting] = child
                    depths[waiting] = depth + 1
                    waiting += 1
            child = self._child(node, levels[depth]) if levels[depth] else 0
            if child:
                nodes[waiting] = child
                depths[waiting] = depth + 1
                waiting += 1
        self._sort()
        return 0

    cdef void _sort(self) noexcept:
        cdef uint64_t* ordered
        if self.nfound > 1:
            ordered = _sorted(self.found, self.spare, self.nfound)
            if ordered != self.found:
                self.spare = self.found
                self.found = ordered

    cdef int _match_address(self, const unsigned char* key, Py_ssize_t size) noexcept:
        """Who holds this very address; if nobody does and it is another node's, who leads to that node by its name,
        and if nobody does, who leads to all others."""
        cdef unsigned char name[MAX_BYTES + 1]
        cdef const unsigned char* at = <const unsigned char*> memchr(key, c'@', size)
        cdef Py_ssize_t end = size if at == NULL else at - key, start
        if self._collect_address(key, size) < 0:
            return -1
        if self.nfound == 0 and not (end == self.here_size and memcmp(key, self.here, end) == 0):
            start = end
            while start and key[start - 1] != c'/':
                start -= 1
            memcpy(name, key + start, end - start)
            name[end - start] = c'@'
            if self._collect_address(name, end - start + 1) < 0:
                return -1
            if self.nfound == 0 and self._collect_address(b"@", 1) < 0:
                return -1
        self._sort()
        return 0

    cdef int _collect_address(self, const unsigned char* key, Py_ssize_t size) noexcept:
        cdef uint32_t level = self._level(key, <uint32_t>size)
        cdef uint32_t node = self._child(_root(ADDRESS), level) if level else 0
        self.meter.steps += 1
        return self._collect(node) if node else 0

    cdef int place(self, const unsigned char* here, Py_ssize_t size) noexcept:
        if size < 0 or size > MAX_BYTES:
            return -1
        memcpy(self.here, here, size)
        self.here_size = size
        return 0

    cdef tuple described(self, uint32_t number):
        """(key, kind, group number, backpressure) of a subscription."""
        cdef Sub* sub = <Sub*>self.subs.items + number
        cdef Node* nodes = <Node*>self.nodes.items
        cdef uint32_t node = sub.node
        cdef Level* level
        cdef list parts = []
        while node > ROOTS:
            level = <Level*>self.levels.items + nodes[node].level
            parts.append(<bytes>(<char*>level.text)[:level.size])
            node = nodes[node].parent
        parts.reverse()
        return b"/".join(parts), "siln"[node - 1], sub.mark >> 1, bool(sub.mark & 1)

    cdef uint32_t _level(self, const unsigned char* text, uint32_t size) noexcept:
        cdef uint32_t h = hash_bytes(self.seed, text, size)
        cdef uint32_t at = hash_first(&self.level_index, h)
        cdef Link* links = self.level_index.links
        cdef Level* level
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                level = <Level*>self.levels.items + at
                if level.size == size and memcmp(level.text, text, size) == 0:
                    return at
            at = links[at].next
        return 0

    cdef uint32_t _new_level(self, const unsigned char* text, uint32_t size) noexcept:
        cdef uint32_t number
        cdef Level* level
        cdef unsigned char* copy
        if hash_reserve(&self.level_index, self.meter, self.levels.used) < 0:
            return 0
        copy = <unsigned char*>meter_take(self.meter, size)
        if copy == NULL:
            return 0
        number = store_take(&self.levels, self.meter)
        if not number:
            meter_give(self.meter, copy)
            return 0
        memcpy(copy, text, size)
        level = <Level*>self.levels.items + number
        level.text = copy
        level.size = size
        level.refs = 0
        hash_put(&self.level_index, self.meter, hash_bytes(self.seed, text, size), number)
        return number

    cdef uint32_t _child(self, uint32_t parent, uint32_t level) noexcept:
        cdef uint32_t h = hash_pair(self.seed, parent, level)
        cdef uint32_t at = hash_first(&self.child_index, h)
        cdef Link* links = self.child_index.links
        cdef Node* node
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                node = <Node*>self.nodes.items + at
                if node.parent == parent and node.level == level:
                    return at
            at = links[at].next
        return 0

    cdef uint32_t _new_child(self, uint32_t parent, const unsigned char* text, uint32_t size) noexcept:
        cdef uint32_t level, number
        cdef Node* node
        if hash_reserve(&self.child_index, self.meter, self.nodes.used) < 0:
            return 0
        number = store_take(&self.nodes, self.meter)
        if not number:
            return 0
        level = self._level(text, size)
        if not level:
            level = self._new_level(text, size)
        if not level:
            store_give(&self.nodes, number)
            return 0
        (<Level*>self.levels.items + level).refs += 1
        node = <Node*>self.nodes.items + number
        node.parent = parent
        node.level = level
        node.children = 0
        node.head = 0
        (<Node*>self.nodes.items + parent).children += 1
        hash_put(&self.child_index, self.meter, hash_pair(self.seed, parent, level), number)
        return number

    cdef uint32_t _walk(self, const unsigned char* key, Py_ssize_t size, int kind, bint create) noexcept:
        """The node of a pattern, 0 if there is none (or no memory to create it)."""
        cdef uint32_t node = _root(kind)
        cdef uint32_t level, child
        cdef Py_ssize_t at = 0, end
        while at < size:
            end = _end(key, at, size, kind)
            level = self._level(key + at, <uint32_t>(end - at))
            child = self._child(node, level) if level else 0
            if not child and create:
                child = self._new_child(node, key + at, <uint32_t>(end - at))
                if not child:
                    self._prune(node)
            if not child:
                return 0
            node = child
            at = end + 1
        return node

    cdef void _prune(self, uint32_t number) noexcept:
        """Free a node that leads to no subscription, and those above it that then lead to none."""
        cdef Node* node
        cdef Level* level
        cdef uint32_t parent, text
        while number > ROOTS:
            node = <Node*>self.nodes.items + number
            if node.head or node.children:
                return
            self.meter.steps += 1
            parent = node.parent
            text = node.level
            level = <Level*>self.levels.items + text
            hash_drop(&self.child_index, self.meter, hash_pair(self.seed, parent, text), number)
            store_give(&self.nodes, number)
            (<Node*>self.nodes.items + parent).children -= 1
            level.refs -= 1
            if level.refs == 0:
                hash_drop(&self.level_index, self.meter, hash_bytes(self.seed, level.text, level.size), text)
                meter_give(self.meter, level.text)
                store_give(&self.levels, text)
            number = parent

    cdef uint32_t _sub(self, uint32_t node, uint32_t port, uint32_t group) noexcept:
        cdef uint32_t h = hash_pair(self.seed, port, hash_pair(self.seed, node, group))
        cdef uint32_t at = hash_first(&self.sub_index, h)
        cdef Link* links = self.sub_index.links
        cdef Sub* sub
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                sub = <Sub*>self.subs.items + at
                if sub.node == node and sub.port == port and sub.mark >> 1 == group:
                    return at
            at = links[at].next
        return 0

    cdef int _link(self, uint32_t node, uint32_t port, uint32_t mark) noexcept:
        """Make a subscription and put it first in both chains."""
        cdef uint32_t at = self.chain(port)
        cdef uint32_t number
        cdef Chain* chain
        cdef Sub* subs
        cdef Node* owner
        if (
            hash_reserve(&self.sub_index, self.meter, self.subs.used) < 0
            or hash_reserve(&self.port_index, self.meter, self.chains.used) < 0
        ):
            return -1
        number = store_take(&self.subs, self.meter)
        if not number:
            return -1
        if not at:
            at = store_take(&self.chains, self.meter)
            if not at:
                store_give(&self.subs, number)
                return -1
            chain = <Chain*>self.chains.items + at
            chain.port = port
            chain.head = 0
            chain.count = 0
            hash_put(&self.port_index, self.meter, hash_pair(self.seed, port, 0), at)
        chain = <Chain*>self.chains.items + at
        owner = <Node*>self.nodes.items + node
        subs = <Sub*>self.subs.items
        subs[number].node = node
        subs[number].port = port
        subs[number].mark = mark
        subs[number].before = 0
        subs[number].after = owner.head
        subs[number].port_before = 0
        subs[number].port_after = chain.head
        if owner.head:
            subs[owner.head].before = number
        if chain.head:
            subs[chain.head].port_before = number
        owner.head = number
        chain.head = number
        chain.count += 1
        self.count += 1
        hash_put(&self.sub_index, self.meter, hash_pair(self.seed, port, hash_pair(self.seed, node, mark >> 1)), number)
        return 0

    cdef int _collect(self, uint32_t node) noexcept:
        cdef uint32_t number = (<Node*>self.nodes.items + node).head
        cdef uint32_t room
        cdef uint64_t* block
        cdef uint64_t* old
        cdef Sub* sub
        while number:
            if self.nfound == self.room:
                room = self.room * 2 if self.room else 64
                block = <uint64_t*>meter_take(self.meter, <size_t>room * 16)
                if block == NULL:
                    return -1
                if self.room:
                    memcpy(block, self.found, <size_t>self.room * 8)
                    old = self.found if self.found < self.spare else self.spare
                    meter_give(self.meter, old)
                self.found = block
                self.spare = block + room
                self.room = room
            sub = <Sub*>self.subs.items + number
            self.meter.steps += 1
            self.found[self.nfound] = (<uint64_t>(sub.mark >> 1) << 33) | (<uint64_t>sub.port << 1) | (sub.mark & 1)
            self.nfound += 1
            number = sub.after
        return 0
