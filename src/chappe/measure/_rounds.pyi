import random

from chappe.measure.links import Links
from chappe.measure.pace import Pace
from chappe.measure.probes import Probes
from chappe.measure.readings import Reading, Settings

class Rounds:
    """When to probe which row, and when to look at what came back."""

    settings: Settings
    awake: bool
    refused: int  # echoes that no probe waited for
    _rng: random.Random
    _links: Links
    _pace: Pace
    _probes: Probes
    _heap: list[tuple[int, int]]  # (when, row); stale where `_due` says otherwise
    _due: list[int]  # when the next probe of a row is due, NEVER if none is
    _sent: list[int]  # when its last one was
    _side: list[int]  # on which side of the usual range its last sample was, 0 if within
    _samples: list[tuple[int, int]]  # (row, round trip) of echoes that were not evaluated yet
    _lost: set[int]  # rows that lost a probe since
    _told: set[int]  # rows of which something else is new
    _evaluate_at: int
    _batch_ns: int
    _now_ns: int
    _origin_ns: int  # of synchronous rounds
    def __init__(self, settings: Settings, rng: random.Random, links: Links) -> None: ...
    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """(link, token) of each probe to send now; a token is never 0."""
    def take(self, echoes: list[tuple[int, int, int, int]], now_ns: int) -> None:
        """Echoes as the engine has them: (link, token, when the probe left or 0, when its answer came)."""
    def echoed(self, link: int, token: int, rtt_ns: int, now_ns: int) -> None:
        """A probe came back; unknown tokens and impossible times are counted (`refused`) and change nothing."""
    def arrived(self, link: int, token: int, arrived_ns: int, now_ns: int) -> None:
        """As `echoed`, of a probe that left when `due` was asked for it and came back at that time, on one clock."""
    def unsent(self, link: int, token: int) -> None:
        """The probe could not be sent, or what it measured was a train of bytes: it counts neither as answered nor as
        lost."""
    def tick(self, now_ns: int) -> list[Reading]:
        """Links whose metrics are new; finds probes that got no answer in time."""
    def next_ns(self) -> int:
        """When `due` or `tick` has something to do at the latest; a time far off if nothing is awaited."""
    def _plan(self, row: int, at_ns: int) -> None: ...
    def _hasten(self, row: int, wait_ns: int, from_ns: int | None = None) -> None: ...
