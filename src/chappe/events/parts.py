"""The parts of a member of the mesh, put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from chappe.engine._engine import Engine
from chappe.events.decisions import Decisions, Withheld
from chappe.events.discovery import NOTHING, Discovery, Source
from chappe.events.forwarding import ForwardingTable
from chappe.events.interest import Subscriptions
from chappe.events.link_metrics import LinkMetrics
from chappe.events.link_readings import LinkReadings
from chappe.events.map_results import MapResults
from chappe.events.member_links import Links, misplaced
from chappe.events.member_measure import Measurement
from chappe.events.member_settings import MemberSettings
from chappe.events.own_interest import OwnInterest
from chappe.events.reporting import Reporter
from chappe.events.reroute import Reroute
from chappe.linkstate.acceptance import Verify
from chappe.linkstate.database import Advert
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.origination import Sign
from chappe.linkstate.parts import Parts
from chappe.linkstate.units import Address
from chappe.wire.mesh import decode_advert
from chappe.wire.patterns import Pattern


def _no_rules(kind: str, topic: bytes, names: Callable[[], Iterable[str]]) -> frozenset[str]:
    return frozenset()


class MemberParts:
    """Each is given the ones before it that it needs."""

    def __init__(
        self, me: Address, engine: Engine, settings: MemberSettings, rng: random.Random,
        sign: Sign | None = None, verify: Verify | None = None,
        decode: Callable[[bytes], Advert] | None = None, withheld: Withheld = _no_rules,
        reporter: Reporter | None = None, source: Source = NOTHING,
    ) -> None:  # fmt: skip
        def objection(advert: Advert) -> str:
            """Why the originator has no place where it says, by the file of this node."""
            return misplaced(settings.places, advert.originator, advert.origin if advert.level else advert.scope)

        self.me = me
        self.engine = engine
        self.settings = settings
        self.rng = rng
        self.links = Links()
        self.measurement = Measurement(engine, settings, rng)
        metrics = LinkMetrics(self.links, self.measurement, reporter)
        self.state = LinkState(Parts(
            me, settings.map, rng, sign, verify, metrics.latest, lambda: engine.wall_ns, objection,
            decode or decode_advert,
        ))  # fmt: skip
        self.subscriptions = Subscriptions()
        profiles = [(Pattern("s", text), name) for text, name in settings.profiles]
        needs = [(Pattern("s", text), words) for text, words in settings.needs]
        self.forwarding = ForwardingTable(
            me, self.state, self.subscriptions, settings.profile, profiles, self.links.ports.__contains__, needs,
            lambda kind, topic: withheld(kind, topic, self.state.members),
        )  # fmt: skip
        self.decisions = Decisions(engine, self.forwarding, self.links, withheld)
        self.reroute = Reroute(
            engine, self.forwarding, self.decisions.decide, settings.undeliverable_ns, settings.undeliverable_bytes,
            settings.slice,
        )  # fmt: skip
        self.results = MapResults(
            me, engine, settings, self.links, self.measurement, self.state, self.decisions, quiet=reporter is None
        )
        self.readings = LinkReadings(engine, self.links, self.measurement, metrics, self.state, self.results, reporter)
        self.discovery = Discovery(me, self.state, self.links, source, settings.profile)
        self.interest = OwnInterest(me, engine, self.subscriptions, self.state, self.results, self.decisions)
