"""Attacks on a node, each bounded in count and time, and only over the loopback."""

from __future__ import annotations

from chappe.bench.hostile.attack import Attack
from chappe.bench.hostile.datagrams import ReplayedDatagrams, UnsolicitedDatagramOpened
from chappe.bench.hostile.floods import ControlFlood, Overrun, ParcelFlood, ProbeFlood, TopicFlood
from chappe.bench.hostile.hashing import HashFlood
from chappe.bench.hostile.identities import BorrowedName, ForgedSession
from chappe.bench.hostile.neighbours import (
    AdvertFlood,
    DeniedToNode,
    ForwardingQuota,
    HugeInterest,
    LiesAboutOthers,
    NodeControlFlood,
    ReplayedStatements,
    SignedGarbage,
)
from chappe.bench.hostile.quotas import (
    AdvertisementQuota,
    ConnectionQuota,
    SubscriptionQuota,
    TopicQuota,
    VariableQuota,
)
from chappe.bench.hostile.replies import ForgedConfirmations, ForgedReplies, InboxQuota
from chappe.bench.hostile.requests import CostlyPatterns, Listings
from chappe.bench.hostile.slow import SlowParallel, SlowPlain, SlowTls, SlowWebSocket
from chappe.bench.hostile.stalled import StalledSubscriber
from chappe.bench.hostile.storms import BadFrames, ReconnectStorm, StrangerStorm, TlsFlood

ATTACKS: tuple[type[Attack], ...] = (
    TopicQuota, VariableQuota, SubscriptionQuota, AdvertisementQuota, ConnectionQuota,
    InboxQuota, ForwardingQuota, HashFlood,
    SlowPlain, SlowTls, SlowWebSocket, SlowParallel, TlsFlood, Listings, CostlyPatterns,
    StalledSubscriber, Overrun, ControlFlood, TopicFlood, ProbeFlood, ParcelFlood,
    ForgedSession, BorrowedName, ForgedReplies, ForgedConfirmations, UnsolicitedDatagramOpened, ReplayedDatagrams,
    BadFrames, ReconnectStorm, StrangerStorm,
    SignedGarbage, LiesAboutOthers, ReplayedStatements, AdvertFlood, HugeInterest, DeniedToNode, NodeControlFlood,
)  # fmt: skip
