"""What the numbers of this connection stand for, and which subscriptions want them; matched once a topic number."""

from chappe.client._inbox cimport IssuerEntry, Subscription, TopicEntry

from chappe.wire.topics import has_wildcard, topic_matches
from chappe.errors import ProtocolError
from chappe.wire.events import Issuer, Topic

cdef enum:
    MAX_TOPICS = 1 << 20
    MAX_ISSUERS = 65536      # remembered over reconnections; the oldest goes first


cdef class Slot:
    """A topic number of the node, with the subscriptions that its topic matches."""


cdef class Directory:
    """Topic and issuer numbers of the node, and the subscriptions of this client."""

    def __cinit__(self):
        self.slots = []
        self.issuers = []
        self.exact = {}
        self.wild = []
        self.generation = 1
        self.issuer_entries = {}
        self.nobody = IssuerEntry(b"", 0)

    def forget_numbers(self):
        """A new connection: the node defines its numbers again. What was seen of each issuer stays."""
        self.slots = []
        self.issuers = []

    cdef Slot slot(self, uint32_t number):
        if number < <uint32_t> len(self.slots):
            slot = self.slots[number]
            if slot is not None:
                return <Slot> slot
        raise ProtocolError(f"an EVENT names topic number {number}, which was not defined")

    cdef IssuerEntry issuer(self, uint32_t number):
        if number < <uint32_t> len(self.issuers):
            issuer = self.issuers[number]
            if issuer is not None:
                return <IssuerEntry> issuer
        return self.nobody

    cdef int define_topic(self, bytes payload) except -1:
        cdef Slot slot = Slot.__new__(Slot)
        definition = Topic.decode(payload)
        if definition.number >= MAX_TOPICS:
            raise ProtocolError(f"topic number {definition.number} is above {MAX_TOPICS - 1}")
        slot.entry = TopicEntry(definition.topic)
        while len(self.slots) <= definition.number:
            self.slots.append(None)
        self.slots[definition.number] = slot
        return 0

    cdef int define_issuer(self, bytes payload) except -1:
        definition = Issuer.decode(payload)
        if definition.number >= MAX_TOPICS:
            raise ProtocolError(f"issuer number {definition.number} is above {MAX_TOPICS - 1}")
        key = definition.issuer, definition.epoch
        entry = self.issuer_entries.get(key)
        if entry is None:
            if len(self.issuer_entries) >= MAX_ISSUERS:
                del self.issuer_entries[next(iter(self.issuer_entries))]
            entry = self.issuer_entries[key] = IssuerEntry(definition.issuer, definition.epoch)
        while len(self.issuers) <= definition.number:
            self.issuers.append(None)
        self.issuers[definition.number] = entry
        return 0

    def add(self, Subscription subscription not None):
        """Deliver what matches to this queue from now on."""
        if subscription.kind == "s" and has_wildcard(subscription.pattern):
            self.wild.append(subscription)
        else:
            key = subscription.kind, subscription.pattern, subscription.group
            self.exact.setdefault(key, []).append(subscription)
        self.generation += 1

    def remove(self, Subscription subscription not None):
        """Deliver nothing more to this queue; True if no other one has the same pattern and group."""
        key = subscription.kind, subscription.pattern, subscription.group
        self.generation += 1
        if subscription in self.wild:
            self.wild.remove(subscription)
            return not any([(s.kind, s.pattern, s.group) == key for s in self.wild])
        if subscription in self.exact.get(key, ()):
            self.exact[key].remove(subscription)
            if self.exact[key]:
                return False
            del self.exact[key]
        return True

    cdef int match(self, Slot slot) except -1:
        cdef TopicEntry entry = slot.entry
        cdef list found = list(self.exact.get((entry.kind, entry.text, entry.group), ()))
        cdef Subscription subscription
        if entry.kind == "s":
            for subscription in self.wild:
                if subscription.group == entry.group and topic_matches(subscription.pattern, entry.text):
                    found.append(subscription)
        slot.subscriptions = found
        slot.generation = self.generation
        return 0
