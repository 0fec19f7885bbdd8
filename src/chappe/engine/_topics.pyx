"""The topic table: numbers for topics, and for each number the ports that get its messages (MR-134, NS-015 to NS-017).

A route is computed from the trie once per topic and generation of subscriptions, then read at the topic's number.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._accounts cimport Account, within
from chappe.engine._memory cimport (
    MemoryBudget, meter_give, meter_resize, meter_take, meter_take_or_raise, raise_no_memory,
)
from chappe.engine._topics_hash cimport (
    K0, Link, hash_bytes, hash_drop, hash_first, hash_init, hash_put, hash_reserve,
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

    `max_topics` bounds the topics that have numbers, and apart from them the (topic, group) pairs; `max_routed_topics`
    the (topic, source route) pairs. `seed` keys the hash tables: give a random one where names come from strangers.
    `budget` counts and bounds the memory, together with what else uses it.
    """

    def __cinit__(self, max_topics: int = 1 << 20, seed: int = 0, max_routed_topics: int = 1 << 16,
                  MemoryBudget budget=None):
        if not 1 <= max_topics <= 1 << 30 or not 1 <= max_routed_topics <= 1 << 24:
            raise ValueError(f"use 1 to {1 << 30} for max_topics {max_topics}, "
                             f"1 to {1 << 24} for max_routed_topics {max_routed_topics}")
        self.max_topics = max_topics
        self.max_routed_topics = max_routed_topics
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        self.budget = MemoryBudget() if budget is None else budget
        self.meter.memory = &self.budget.memory
        self.stamp = self.forwarding_stamp = 1
        self.used = 1
        self.capacity = 8
        self.topics = <Topic*>meter_take_or_raise(&self.meter, self.capacity * sizeof(Topic))
        hash_init(&self.topic_index, &self.meter)
        self.trie = Trie()
        self.trie.open(&self.meter, self.seed)
        self.group_table = Groups()
        self.group_table.open(&self.meter, self.seed)
        self.cursors = self.group_table.cursors
        self.route_table = Groups()
        self.route_table.open(&self.meter, self.seed)
        self.routes = Routes()
        self.routes.open(&self.meter, self.seed)
        self.routes.words[0] = 0
        self.routes.words[1] = 0
        self.empty = self.routes.find(2, 0)
        if self.empty == NULL:
            raise_no_memory(self.meter.memory, "an empty topic table")
        self.empty.refs = 1

    def __dealloc__(self):
        cdef uint32_t i
        if self.topics != NULL:
            for i in range(1, self.used):
                free(self.topics[i].name)
        free(self.topics)
        free(self.topic_index.heads)
        free(self.topic_index.links)

    # Topics and their numbers

    cdef uint32_t intern(self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group) noexcept:
        cdef uint32_t h = hash_bytes(_topic_seed(self.seed, kind, group), key, size)
        cdef uint32_t at = hash_first(&self.topic_index, h)
        cdef Link* links = self.topic_index.links
        cdef Topic* topic
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                topic = self.topics + at
                if (
                    topic.length == size and topic.kind == kind and topic.group == group
                    and memcmp(topic.name, key, size) == 0
                ):
                    return at
            at = links[at].next
        return self._new_topic(key, size, kind, group, h)

    cdef uint32_t intern_routed(self, const unsigned char* key, Py_ssize_t size, int kind, bytes source_route) noexcept:
        cdef uint32_t length = <uint32_t>len(source_route)
        cdef uint32_t number = (self.route_table.find(source_route, length)
                                or self.route_table.make(source_route, length))
        cdef uint32_t pair = 0
        if number:
            self.route_table.hold(number)
            pair = self.intern(key, size, kind, ROUTED_TOPIC | number)
            self.route_table.release(number)
        return pair

    cdef uint32_t _new_topic(
        self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group, uint32_t h
    ) noexcept:
        cdef uint32_t number, capacity
        cdef Topic* topic
        cdef void* block
        if size < 1 or size > MAX_BYTES or not self._admitted(group):
            return 0
        if hash_reserve(&self.topic_index, &self.meter, self.used) < 0:
            return 0
        if not self.spare and self.used == self.capacity:
            capacity = self.capacity + (self.capacity >> 1)
            block = meter_resize(&self.meter, self.topics, capacity * sizeof(Topic))
            if block == NULL:
                return 0
            self.topics = <Topic*>block
            memset(self.topics + self.capacity, 0, (capacity - self.capacity) * sizeof(Topic))
            self.capacity = capacity
        block = meter_take(&self.meter, size)
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
        topic.account = self.charging
        self._charge(topic, 1)
        if group & ROUTED_TOPIC:
            self.routed_topics += 1
            self.route_table.hold(group & ~ROUTED_TOPIC)
        elif group:
            self.pairs += 1
            self.group_table.hold(group)
        else:
            self.plain += 1
        hash_put(&self.topic_index, &self.meter, h, number)
        return number

    cdef bint _admitted(self, uint32_t group) noexcept:
        """Whether there is a number left of this kind, and for whoever is charged for it."""
        cdef Account* account
        cdef bint admitted
        if self.charging == 0:
            return (self.routed_topics < self.max_routed_topics if group & ROUTED_TOPIC
                    else (self.pairs if group else self.plain) < self.max_topics)
        account = self.accounts.items[self.charging]
        if group & ROUTED_TOPIC:
            admitted = within(account.routed_topics, self.accounts.max_routed_topics, self.max_routed_topics,
                              self.routed_topics)
        elif group:
            admitted = within(account.pairs, self.accounts.max_topics, self.max_topics, self.pairs)
        else:
            admitted = within(account.topics, self.accounts.max_topics, self.max_topics, self.plain)
        account.refused += not admitted
        return admitted

    cdef void _charge(self, Topic* topic, int amount) noexcept:
        cdef Account* account
        if topic.account:
            account = self.accounts.items[topic.account]
            if topic.group & ROUTED_TOPIC:
                account.routed_topics += amount
            elif topic.group:
                account.pairs += amount
            else:
                account.topics += amount

    def number(self, topic: str | int, kind: str = "s") -> int:
        """Number of a topic, made if it has none; its holders are not changed."""
        cdef bytes key = encode_key(topic, kind)
        cdef uint32_t number
        self.charging = 0
        number = self.intern(key, len(key), ord(kind), 0)
        if not number:
            raise RefusedError(f"topic {topic!r} gets no number: all {self.max_topics} are in use; raise max_topics")
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
        self.released += self.topics[number].refs == 0

    def name(self, uint32_t number) -> tuple[str, bytes, str]:
        """(kind, topic as in frames, group name or "") of a number, quarantined ones included."""
        cdef Topic* topic
        self._check(number)
        topic = self.topics + number
        group = "" if topic.group & ROUTED_TOPIC else self.group_table.name(topic.group)
        return chr(topic.kind), <bytes>(<char*>topic.name)[:topic.length], group

    def source_route(self, uint32_t number) -> bytes:
        """The source route of a (topic, source route) number, b"" of others."""
        self._check(number)
        cdef uint32_t group = self.topics[number].group
        return self.route_table.text(group & ~ROUTED_TOPIC) if group & ROUTED_TOPIC else b""

    def place(self, address: str) -> None:
        """Say which node this table belongs to: addresses there lead to nobody else."""
        cdef bytes here = encode_key(address, "n")
        if self.trie.place(here, len(here)) < 0:
            raise TopicError(f"the address {address[:60]!r}... of this node is too long")
        self.stamp += 1

    def forwarding_changed(self) -> None:
        """Forwarding may be others now: each is asked for again at its next event."""
        self.forwarding_stamp += 1

    def count(self) -> int:
        """How many topics and pairs are found by name."""
        return self.topic_index.used

    def sweep(self, uint32_t limit = 0) -> int:
        """Quarantine numbers without holders, so that their names get new numbers; returns how many.

        With a limit, look at that many numbers only and go on there next time.
        """
        cdef uint32_t before = self.topic_index.used
        cdef uint32_t left = min(limit, self.used - 1) if limit else self.used - 1
        self.released = 0
        while left:
            left -= 1
            self.swept = self.swept + 1 if self.swept + 1 < self.used else 1
            if self.topics[self.swept].state == LIVE and self.topics[self.swept].refs == 0:
                self._quarantine(self.swept)
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
        return self.recycle_unless(NULL)

    cdef list recycle_unless(self, const uint64_t* queued):
        cdef uint32_t number = self.quarantine
        cdef uint32_t following, kept = 0
        cdef Topic* topic
        cdef list freed = []
        while number:
            topic = self.topics + number
            following = topic.link
            if topic.refs or (queued != NULL and (queued[number >> 6] >> (number & 63)) & 1):
                topic.link = kept
                kept = number
            else:
                if topic.route != NULL:
                    self._drop_route(topic.route, False)
                meter_give(&self.meter, topic.name)
                self._charge(topic, -1)
                if topic.group & ROUTED_TOPIC:
                    self.routed_topics -= 1
                    self.route_table.release(topic.group & ~ROUTED_TOPIC)
                elif topic.group:
                    self.pairs -= 1
                    self.group_table.release(topic.group)
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
        cdef int ngroups = 0, i
        if topic.group:
            route = self.empty
        else:
            if self.trie.match(topic.name, topic.length, topic.kind) < 0:
                return NULL
            self.charging = topic.account
            nwords = self._layout(number, &ngroups)
            route = self.routes.find(nwords, ngroups) if nwords else NULL
            if route == NULL:
                return NULL
            if route.refs == 0:
                for i in range(ngroups):
                    self.topics[route.groups[i].pair].refs += 1
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
        cdef Topic* topic
        cdef size_t at = 0, first
        if self.routes.reserve(2 + <size_t>nfound * 6) < 0:
            return 0
        while True:
            group = <uint32_t>(found[i] >> 33) if i < nfound else 0
            if at == 0:
                group = 0
            elif i == nfound:
                return at
            else:
                topic = self.topics + number
                pair = self.intern(topic.name, topic.length, topic.kind, group)
                if not pair:
                    self.overflows += 1
                    while i < nfound and found[i] >> 33 == group:
                        i += 1
                    continue
                self.routes.words[at] = pair
                self.routes.words[at + 1] = group
                at += 2
                ngroups[0] += 1
            head = self.routes.words + at
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
        self.routes.discard(route)

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
            if route == NULL:
                raise_no_memory(self.meter.memory, f"the route of topic number {number}")
        for i in range(route.ngroups):
            group = route.groups + i
            groups[self.group_table.name(group.group)] = (
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
        cdef str name
        cdef list ports = [], members
        cdef dict groups = {}
        if self.trie.match(key, len(key), ord(kind)) < 0:
            raise_no_memory(self.meter.memory, f"the subscribers of topic {topic!r}")
        for i in range(self.trie.nfound):
            if i and self.trie.found[i] >> 1 == previous >> 1:
                continue
            previous = self.trie.found[i]
            name = self.group_table.name(<uint32_t>(previous >> 33))
            members = groups.setdefault(name, []) if name else ports
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
            number = self.group_table.find(name, <uint32_t>len(name))
            if not number:
                number = self.group_table.make(name, <uint32_t>len(name))
                self.cursors = self.group_table.cursors
            if not number:
                raise RefusedError(f"no memory for group {group!r}: raise limits.memory_bytes of this node")
            self.group_table.hold(number)
        result = self.trie.add(port, key, len(key), ord(kind), number, backpressure)
        if number and result != ADDED:
            self.group_table.release(number)
        if result < 0:
            raise RefusedError(f"no memory for a subscription to {pattern!r}: raise limits.memory_bytes of this node")
        if result != UNCHANGED:
            self.stamp += 1
        return result == ADDED

    def unsubscribe(self, uint32_t port, pattern: str, kind: str = "s", group: str = "") -> bool:
        """Take a subscription away; False if there was none."""
        cdef bytes key = encode_key(pattern, kind, True)
        cdef bytes name = encode_group(group)
        cdef uint32_t number = 0, sub
        if name:
            number = self.group_table.find(name, <uint32_t>len(name))
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
            self.group_table.release(group)

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
            listed.append((decode_key(key, kind), kind, self.group_table.name(group), back))
            sub = (<Sub*>self.trie.subs.items + sub).port_after
        return listed

    def nodes(self) -> int:
        """How many trie nodes subscriptions need now."""
        return self.trie.child_index.used

    # Costs

    def memory_bytes(self) -> int:
        """Bytes held from the allocator, its overhead included."""
        return self.meter.bytes + self.__sizeof__() + self.trie.__sizeof__()

    def steps(self) -> int:
        """Probes, visits and moves since the table was made: the work of its operations, independent of clocks."""
        return self.meter.steps
