"""Attacks on a node, each bounded in count and time, and only over the loopback."""

from __future__ import annotations

from bench.hostile.attack import Attack
from bench.hostile.datagrams import ReplayedDatagrams, UnsolicitedDatagramOpened
from bench.hostile.floods import ControlFlood, Overrun, ParcelFlood, ProbeFlood, TopicFlood
from bench.hostile.hashing import HashFlood
from bench.hostile.identities import BorrowedName, ForgedSession
from bench.hostile.neighbours import (
    AdvertFlood,
    DeniedToNode,
    ForwardingQuota,
    HugeInterest,
    LiesAboutOthers,
    NodeControlFlood,
    ReplayedStatements,
    SignedGarbage,
)
from bench.hostile.quotas import (
    AdvertisementQuota,
    ConnectionQuota,
    SubscriptionQuota,
    TopicQuota,
    VariableQuota,
)
from bench.hostile.replies import ForgedConfirmations, ForgedReplies, InboxQuota
from bench.hostile.requests import CostlyPatterns, Listings
from bench.hostile.slow import SlowParallel, SlowPlain, SlowTls, SlowWebSocket
from bench.hostile.stalled import StalledSubscriber
from bench.hostile.storms import BadFrames, ReconnectStorm, StrangerStorm, TlsFlood

ATTACKS: tuple[type[Attack], ...] = (
    TopicQuota, VariableQuota, SubscriptionQuota, AdvertisementQuota, ConnectionQuota,
    InboxQuota, ForwardingQuota, HashFlood,
    SlowPlain, SlowTls, SlowWebSocket, SlowParallel, TlsFlood, Listings, CostlyPatterns,
    StalledSubscriber, Overrun, ControlFlood, TopicFlood, ProbeFlood, ParcelFlood,
    ForgedSession, BorrowedName, ForgedReplies, ForgedConfirmations, UnsolicitedDatagramOpened, ReplayedDatagrams,
    BadFrames, ReconnectStorm, StrangerStorm,
    SignedGarbage, LiesAboutOthers, ReplayedStatements, AdvertFlood, HugeInterest, DeniedToNode, NodeControlFlood,
)  # fmt: skip
