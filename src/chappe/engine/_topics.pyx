"""The topic table: numbers for topics, and for each number the ports that get its messages (MR-134, NS-015 to NS-017).

A route is computed from the trie once per topic and generation of subscriptions, then read from the topic's
number. Equal routes are one object, found by content, so that the engine compares pointers to merge runs of
messages. The content of a route with queue groups includes its pair numbers, which makes it one per topic.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._topics_hash cimport (
    K0,
    Slot,
    charged,
    give_bytes,
    hash_bytes,
    hash_drop,
    hash_init,
    hash_put,
    hash_reserve,
    resize_bytes,
    store_give,
    store_init,
    store_take,
    take_bytes,
)
from chappe.engine._topics_names cimport MAX_BYTES
from chappe.engine._topics_trie cimport ADDED, UNCHANGED, Chain, Sub

from chappe.engine._topics_names import TopicError, check_pattern, check_topic, decode_key, encode_group, encode_key
from chappe.errors import RefusedError

__all__ = ["TopicError", "TopicTable", "check_pattern", "check_topic"]

cdef enum:
    FREE = 0
    LIVE = 1
    QUARANTINED = 2              # not found by name any more, its number not yet given again


cdef inline uint64_t _topic_seed(uint64_t seed, int kind, uint32_t group) noexcept nogil:
    return seed ^ (((<uint64_t>kind << 32) | group) * K0)


cdef class TopicTable:
    """Subscriptions of ports to topics, and the resolved route of every topic in use.

    `max_topics` bounds the topics that have numbers, and apart from them the (topic, group) pairs. `seed` keys the
    hash tables: give a random one where names come from strangers.
    """

    def __cinit__(self, max_topics: int = 1 << 20, seed: int = 0):
        if not 1 <= max_topics <= 1 << 30:
            raise ValueError(f"max_topics is {max_topics}; use 1 to {1 << 30}")
        self.max_topics = max_topics
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        self.meter.calls = &self.allocations
        self.stamp = 1
        self.used = 1
        self.capacity = 8
        self.cursor_room = 8
        self.topics = <Topic*>calloc(self.capacity, sizeof(Topic))
        self.cursors = <uint32_t*>calloc(self.cursor_room, sizeof(uint32_t))
        self.meter.bytes = charged(self.capacity * sizeof(Topic)) + charged(self.cursor_room * sizeof(uint32_t))
        if (
            self.topics == NULL or self.cursors == NULL or hash_init(&self.topic_index, &self.meter)
            or hash_init(&self.route_index, &self.meter) or hash_init(&self.group_index, &self.meter)
            or store_init(&self.routes, &self.meter, sizeof(Route*))
            or store_init(&self.groups_store, &self.meter, sizeof(Group))
        ):
            raise MemoryError("no memory for an empty topic table")
        self.trie = Trie()
        self.trie.open(&self.meter, self.seed)
        self.words_room = 16
        self.words = <uint32_t*>take_bytes(&self.meter, self.words_room * sizeof(uint32_t))
        if self.words == NULL:
            raise MemoryError("no memory for an empty topic table")
        self.words[0] = 0
        self.words[1] = 0
        self.empty = self._route(2, 0)
        if self.empty == NULL:
            raise MemoryError("no memory for an empty topic table")
        self.empty.refs = 1
        self.allocations = 0

    def __dealloc__(self):
        cdef uint32_t i
        cdef Slot* slots = self.route_index.slots
        if slots != NULL:
            for i in range(self.route_index.mask + 1):
                if slots[i].value:
                    free((<Route**>self.routes.items)[slots[i].value])
        slots = self.group_index.slots
        if slots != NULL:
            for i in range(self.group_index.mask + 1):
                if slots[i].value:
                    free((<Group*>self.groups_store.items + slots[i].value).name)
        if self.topics != NULL:
            for i in range(1, self.used):
                free(self.topics[i].name)
        free(self.topics)
        free(self.cursors)
        free(self.words)
        free(self.topic_index.slots)
        free(self.route_index.slots)
        free(self.group_index.slots)
        free(self.routes.items)
        free(self.groups_store.items)

    # Topics and their numbers

    cdef uint32_t intern(self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group) noexcept:
        cdef uint32_t h = hash_bytes(_topic_seed(self.seed, kind, group), key, size)
        cdef uint32_t at = h & self.topic_index.mask
        cdef Slot* slots = self.topic_index.slots
        cdef Topic* topic
        while slots[at].value:
            self.meter.steps += 1
            if slots[at].hash == h:
                topic = self.topics + slots[at].value
                if (
                    topic.length == size and topic.kind == kind and topic.group == group
                    and memcmp(topic.name, key, size) == 0
                ):
                    return slots[at].value
            at = (at + 1) & self.topic_index.mask
        return self._new_topic(key, size, kind, group, h)

    cdef uint32_t _new_topic(self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group, uint32_t h) noexcept:
        cdef uint32_t number, capacity
        cdef Topic* topic
        cdef void* block
        if size < 1 or size > MAX_BYTES or (self.pairs if group else self.plain) >= self.max_topics:
            return 0
        if hash_reserve(&self.topic_index, &self.meter) < 0:
            return 0
        if not self.spare and self.used == self.capacity:
            capacity = self.capacity + (self.capacity >> 1)
            block = resize_bytes(&self.meter, self.topics, self.capacity * sizeof(Topic), capacity * sizeof(Topic))
            if block == NULL:
                return 0
            self.topics = <Topic*>block
            memset(self.topics + self.capacity, 0, (capacity - self.capacity) * sizeof(Topic))
            self.capacity = capacity
        block = take_bytes(&self.meter, size)
        if block == NULL:
            return 0
        memcpy(block, key, size)
        number = self.spare
        if number:
            self.spare = self.topics[number].link
        else:
            number = self.used
            self.used += 1
        topic = self.topics + number
        topic.route = NULL
        topic.stamp = 0
        topic.refs = 0
        topic.group = group
        topic.name = <unsigned char*>block
        topic.link = 0
        topic.length = <uint16_t>size
        topic.kind = <uint8_t>kind
        topic.state = LIVE
        if group:
            self.pairs += 1
            (<Group*>self.groups_store.items + group).refs += 1
        else:
            self.plain += 1
        hash_put(&self.topic_index, &self.meter, h, number)
        return number

    def number(self, topic: str | int, kind: str = "s") -> int:
        """Number of a topic, made if it has none; its holders are not changed."""
        cdef bytes key = encode_key(topic, kind)
        cdef uint32_t number = self.intern(key, len(key), ord(kind), 0)
        if not number:
            raise RefusedError(f"no number left for topic {topic!r}: all {self.max_topics} are in use; raise max_topics")
        return number

    cdef int _check(self, uint32_t number) except -1:
        if number == 0 or number >= self.used or self.topics[number].state == FREE:
            raise IndexError(f"topic number {number} is not in use; take one from number()")
        return 0

    def hold(self, uint32_t number) -> None:
        """Keep a number from being swept until it is released as often as held."""
        self._check(number)
        self.topics[number].refs += 1

    def release(self, uint32_t number) -> None:
        """Undo one hold."""
        self._check(number)
        if self.topics[number].refs == 0:
            raise ValueError(f"topic number {number} is released more often than held")
        self.topics[number].refs -= 1

    def name(self, uint32_t number) -> tuple[str, bytes, str]:
        """(kind, topic as in frames, group name or "") of a number, quarantined ones included."""
        cdef Topic* topic
        self._check(number)
        topic = self.topics + number
        return chr(topic.kind), <bytes>(<char*>topic.name)[:topic.length], self._group_name(topic.group)

    def count(self) -> int:
        """How many topics and pairs are found by name."""
        return self.topic_index.used

    def sweep(self) -> int:
        """Quarantine every number without holders, so that its name gets a new number; returns how many."""
        cdef uint32_t number
        cdef uint32_t before = self.topic_index.used
        for number in range(1, self.used):
            if self.topics[number].state == LIVE and self.topics[number].refs == 0:
                self._quarantine(number)
        return before - self.topic_index.used

    cdef void _quarantine(self, uint32_t number) noexcept:
        cdef Topic* topic = self.topics + number
        cdef Route* route = topic.route
        hash_drop(
            &self.topic_index, &self.meter,
            hash_bytes(_topic_seed(self.seed, topic.kind, topic.group), topic.name, topic.length), number,
        )
        topic.state = QUARANTINED
        topic.link = self.quarantine
        topic.route = NULL
        topic.stamp = 0
        self.quarantine = number
        if route != NULL:
            self._drop_route(route, True)

    def recycle(self) -> list[int]:
        """Free the quarantined numbers for new topics; call when nothing queued carries them any more."""
        cdef uint32_t number = self.quarantine
        cdef uint32_t following, kept = 0
        cdef Topic* topic
        cdef list freed = []
        while number:
            topic = self.topics + number
            following = topic.link
            if topic.refs:
                topic.link = kept
                kept = number
            else:
                if topic.route != NULL:
                    self._drop_route(topic.route, False)
                give_bytes(&self.meter, topic.name, topic.length)
                if topic.group:
                    self.pairs -= 1
                    self._release_group(topic.group)
                else:
                    self.plain -= 1
                memset(topic, 0, sizeof(Topic))
                topic.link = self.spare
                self.spare = number
                freed.append(number)
            number = following
        self.quarantine = kept
        if freed and self.overflows != self.overflows_seen:
            self.overflows_seen = self.overflows
            self.stamp += 1      # groups that got no pair number can have one now
        return freed

    # Routes

    cdef Route* resolve(self, uint32_t number) noexcept:
        cdef Topic* topic = self.topics + number
        cdef Route* route
        cdef Route* old
        cdef size_t nwords
        cdef int ngroups = 0
        if topic.group:
            route = self.empty
        else:
            if self.trie.match(topic.name, topic.length, topic.kind) < 0:
                return self.empty
            nwords = self._layout(number, &ngroups)
            if nwords == 0:
                return self.empty
            route = self._route(nwords, ngroups)
            if route == NULL:
                return self.empty
        topic = self.topics + number
        old = topic.route
        route.refs += 1
        topic.route = route
        topic.stamp = self.stamp
        if old != NULL:
            self._drop_route(old, False)
        return route

    cdef size_t _layout(self, uint32_t number, int* ngroups) noexcept:
        """Write what the trie found as words, [pair, group,] n, nback, ports, back ports; 0 without memory."""
        cdef uint64_t* found = self.trie.found
        cdef uint32_t nfound = self.trie.nfound
        cdef uint32_t i = 0, group, pair, n, nback, port
        cdef uint32_t* head
        cdef size_t room = 2 + <size_t>nfound * 6
        cdef size_t at = 0, first
        cdef void* block
        if room > self.words_room:
            room += room >> 1
            block = resize_bytes(&self.meter, self.words, self.words_room * sizeof(uint32_t), room * sizeof(uint32_t))
            if block == NULL:
                return 0
            self.words = <uint32_t*>block
            self.words_room = room
        while True:
            group = <uint32_t>(found[i] >> 33) if i < nfound else 0
            if at == 0:
                group = 0
            elif i == nfound:
                return at
            else:
                pair = self.intern(self.topics[number].name, self.topics[number].length, self.topics[number].kind, group)
                if not pair:
                    self.overflows += 1
                    while i < nfound and found[i] >> 33 == group:
                        i += 1
                    continue
                self.words[at] = pair
                self.words[at + 1] = group
                at += 2
                ngroups[0] += 1
            head = self.words + at
            first = i
            n = 0
            while i < nfound and found[i] >> 33 == group:
                port = <uint32_t>(found[i] >> 1)
                if n == 0 or head[1 + n] != port:
                    head[2 + n] = port
                    n += 1
                i += 1
            nback = 0
            while first < i:
                port = <uint32_t>(found[first] >> 1)
                if found[first] & 1 and (nback == 0 or head[1 + n + nback] != port):
                    head[2 + n + nback] = port
                    nback += 1
                first += 1
            head[0] = n
            head[1] = nback
            at += 2 + n + nback

    cdef Route* _route(self, size_t nwords, int ngroups) noexcept:
        """The route whose content the scratch words are, made if there is none; NULL without memory."""
        cdef size_t size = nwords * sizeof(uint32_t)
        cdef uint32_t h = hash_bytes(self.seed, <unsigned char*>self.words, size)
        cdef uint32_t at = h & self.route_index.mask
        cdef Slot* slots = self.route_index.slots
        cdef Route* route
        cdef uint32_t number
        while slots[at].value:
            self.meter.steps += 1
            if slots[at].hash == h:
                route = (<Route**>self.routes.items)[slots[at].value]
                if route.nwords == nwords and memcmp(route.words, self.words, size) == 0:
                    return route
            at = (at + 1) & self.route_index.mask
        if hash_reserve(&self.route_index, &self.meter) < 0:
            return NULL
        number = store_take(&self.routes, &self.meter)
        if not number:
            return NULL
        route = <Route*>take_bytes(&self.meter, sizeof(Route) + ngroups * sizeof(GroupRef) + size)
        if route == NULL:
            store_give(&self.routes, number)
            return NULL
        route.groups = <GroupRef*>(route + 1)
        route.words = <uint32_t*>(route.groups + ngroups)
        route.ngroups = ngroups
        route.nwords = <uint32_t>nwords
        route.refs = 0
        route.hash = h
        route.number = number
        memcpy(route.words, self.words, size)
        self._point(route)
        (<Route**>self.routes.items)[number] = route
        hash_put(&self.route_index, &self.meter, h, number)
        return route

    cdef void _point(self, Route* route) noexcept:
        """Let the parts of a new route point into its words, and hold its pairs."""
        cdef uint32_t* word = route.words
        cdef GroupRef* group
        cdef int i
        route.n = word[0]
        route.nback = word[1]
        route.ports = word + 2
        route.back = route.ports + route.n
        word = route.back + route.nback
        for i in range(route.ngroups):
            group = route.groups + i
            group.pair = word[0]
            group.group = word[1]
            group.n = word[2]
            group.nback = word[3]
            group.ports = word + 4
            group.back = group.ports + group.n
            word = group.back + group.nback
            self.topics[group.pair].refs += 1

    cdef void _drop_route(self, Route* route, bint quarantine) noexcept:
        """Undo one hold of a route; its pairs that nobody else holds follow a topic into quarantine."""
        cdef int i
        cdef uint32_t pair
        route.refs -= 1
        if route.refs:
            return
        for i in range(route.ngroups):
            pair = route.groups[i].pair
            self.topics[pair].refs -= 1
            if quarantine and self.topics[pair].refs == 0 and self.topics[pair].state == LIVE:
                self._quarantine(pair)
        hash_drop(&self.route_index, &self.meter, route.hash, route.number)
        store_give(&self.routes, route.number)
        give_bytes(
            &self.meter, route, sizeof(Route) + route.ngroups * sizeof(GroupRef) + route.nwords * sizeof(uint32_t)
        )

    def route(self, uint32_t number) -> tuple[int, list[int], list[int], dict[str, tuple[int, list[int], list[int]]]]:
        """(identity, ports, backpressure ports, {group: (pair, ports, backpressure ports)}), as the engine sees it."""
        cdef Route* route
        cdef GroupRef* group
        cdef int i, j
        cdef dict groups = {}
        self._check(number)
        route = self.topics[number].route
        if self.topics[number].stamp != self.stamp:
            route = self.resolve(number)
        for i in range(route.ngroups):
            group = route.groups + i
            groups[self._group_name(group.group)] = (
                group.pair, [group.ports[j] for j in range(group.n)], [group.back[j] for j in range(group.nback)]
            )
        return (
            <size_t>route, [route.ports[j] for j in range(route.n)], [route.back[j] for j in range(route.nback)], groups
        )

    def match(self, topic: str | int, kind: str = "s") -> tuple[list[int], dict[str, list[int]]]:
        """Ports, and ports by group, that would get a message now; asks the trie, not the cache."""
        cdef bytes key = encode_key(topic, kind)
        cdef uint32_t i
        cdef uint64_t previous = 0
        cdef list ports = [], members
        cdef dict groups = {}
        if self.trie.match(key, len(key), ord(kind)) < 0:
            raise MemoryError(f"no memory to match topic {topic!r}")
        for i in range(self.trie.nfound):
            if i and self.trie.found[i] >> 1 == previous >> 1:
                continue
            previous = self.trie.found[i]
            members = groups.setdefault(self._group_name(<uint32_t>(previous >> 33)), []) if previous >> 33 else ports
            members.append(<uint32_t>(previous >> 1))
        return ports, groups

    # Subscriptions

    def subscribe(
        self, uint32_t port, pattern: str, kind: str = "s", group: str = "", backpressure: bool = False
    ) -> bool:
        """Add a subscription; False if it was there, in which case only its backpressure follows this call."""
        cdef bytes key = encode_key(pattern, kind, True)
        cdef bytes name = encode_group(group)
        cdef uint32_t number = 0
        cdef int result
        if name:
            number = self._group(name, <uint32_t>len(name))
            if not number:
                number = self._new_group(name, <uint32_t>len(name))
                if not number:
                    raise MemoryError(f"no memory for group {group!r}")
        result = self.trie.add(port, key, len(key), ord(kind), number, backpressure)
        if number:
            if result == ADDED:
                (<Group*>self.groups_store.items + number).refs += 1
                (<Group*>self.groups_store.items + number).members += 1
            elif (<Group*>self.groups_store.items + number).refs == 0:
                self._free_group(number)
        if result < 0:
            raise MemoryError(f"no memory for a subscription to {pattern!r}")
        if result != UNCHANGED:
            self.stamp += 1
        return result == ADDED

    def unsubscribe(self, uint32_t port, pattern: str, kind: str = "s", group: str = "") -> bool:
        """Take a subscription away; False if there was none."""
        cdef bytes key = encode_key(pattern, kind, True)
        cdef bytes name = encode_group(group)
        cdef uint32_t number = 0, sub
        if name:
            number = self._group(name, <uint32_t>len(name))
            if not number:
                return False
        sub = self.trie.find(port, key, len(key), ord(kind), number)
        if not sub:
            return False
        self._remove(sub)
        self.stamp += 1
        return True

    def remove_port(self, uint32_t port, uint32_t limit) -> int:
        """Take away up to `limit` subscriptions of a port; returns how many it still has."""
        cdef uint32_t chain = self.trie.chain(port)
        cdef uint32_t left
        if not chain:
            return 0
        left = (<Chain*>self.trie.chains.items + chain).count
        while left and limit:
            self._remove((<Chain*>self.trie.chains.items + chain).head)
            left -= 1
            limit -= 1
            self.stamp += 1
        return left

    cdef void _remove(self, uint32_t sub) noexcept:
        cdef uint32_t group = (<Sub*>self.trie.subs.items + sub).mark >> 1
        self.trie.remove(sub)
        if group:
            (<Group*>self.groups_store.items + group).members -= 1
            self._release_group(group)

    def subscriptions(self, port: int | None = None) -> int:
        """How many subscriptions there are, of one port or of all."""
        cdef uint32_t chain
        if port is None:
            return self.trie.count
        chain = self.trie.chain(port)
        return (<Chain*>self.trie.chains.items + chain).count if chain else 0

    def patterns(self, uint32_t port) -> list[tuple[str, str, str, bool]]:
        """(pattern, kind, group, backpressure) of each subscription of a port, newest first."""
        cdef uint32_t chain = self.trie.chain(port)
        cdef uint32_t sub = (<Chain*>self.trie.chains.items + chain).head if chain else 0
        cdef list listed = []
        while sub:
            key, kind, group, back = self.trie.described(sub)
            listed.append((decode_key(key, kind), kind, self._group_name(group), back))
            sub = (<Sub*>self.trie.subs.items + sub).port_after
        return listed

    def nodes(self) -> int:
        """How many trie nodes subscriptions need now."""
        return self.trie.child_index.used

    # Groups

    cdef uint32_t _group(self, const unsigned char* name, uint32_t size) noexcept:
        cdef uint32_t h = hash_bytes(self.seed, name, size)
        cdef uint32_t at = h & self.group_index.mask
        cdef Slot* slots = self.group_index.slots
        cdef Group* group
        while slots[at].value:
            self.meter.steps += 1
            if slots[at].hash == h:
                group = <Group*>self.groups_store.items + slots[at].value
                if group.size == size and memcmp(group.name, name, size) == 0:
                    return slots[at].value
            at = (at + 1) & self.group_index.mask
        return 0

    cdef uint32_t _new_group(self, const unsigned char* name, uint32_t size) noexcept:
        cdef uint32_t number, room
        cdef Group* group
        cdef void* block
        if hash_reserve(&self.group_index, &self.meter) < 0:
            return 0
        number = store_take(&self.groups_store, &self.meter)
        if not number:
            return 0
        if number >= self.cursor_room:
            room = self.groups_store.capacity
            block = resize_bytes(&self.meter, self.cursors, self.cursor_room * 4, <size_t>room * 4)
            if block == NULL:
                store_give(&self.groups_store, number)
                return 0
            self.cursors = <uint32_t*>block
            self.cursor_room = room
        block = take_bytes(&self.meter, size)
        if block == NULL:
            store_give(&self.groups_store, number)
            return 0
        memcpy(block, name, size)
        self.cursors[number] = 0
        group = <Group*>self.groups_store.items + number
        group.name = <unsigned char*>block
        group.size = size
        group.refs = 0
        group.members = 0
        hash_put(&self.group_index, &self.meter, hash_bytes(self.seed, name, size), number)
        return number

    cdef void _release_group(self, uint32_t number) noexcept:
        cdef Group* group = <Group*>self.groups_store.items + number
        group.refs -= 1
        if group.refs == 0:
            self._free_group(number)

    cdef void _free_group(self, uint32_t number) noexcept:
        cdef Group* group = <Group*>self.groups_store.items + number
        hash_drop(&self.group_index, &self.meter, hash_bytes(self.seed, group.name, group.size), number)
        give_bytes(&self.meter, group.name, group.size)
        store_give(&self.groups_store, number)

    cdef str _group_name(self, uint32_t number):
        cdef Group* group = <Group*>self.groups_store.items + number
        return (<bytes>(<char*>group.name)[:group.size]).decode() if number else ""

    def groups(self) -> dict[str, int]:
        """Number of subscriptions by group name."""
        cdef uint32_t i, number
        cdef dict counted = {}
        for i in range(self.group_index.mask + 1):
            number = self.group_index.slots[i].value
            if number and (<Group*>self.groups_store.items + number).members:
                counted[self._group_name(number)] = (<Group*>self.groups_store.items + number).members
        return counted

    # Costs

    def memory_bytes(self) -> int:
        """Bytes held from the allocator, its overhead included."""
        return self.meter.bytes + self.__sizeof__() + self.trie.__sizeof__()

    def steps(self) -> int:
        """Probes, visits and moves since the table was made: the work of its operations, independent of clocks."""
        return self.meter.steps
