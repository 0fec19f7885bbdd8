"""When a condensation function calculates (GS-131). Times are nanoseconds since 1970, as in the records."""

from __future__ import annotations

from chappe.status.condensation.calculators import TRIGGERS, Setup, load

LATE_NS = 1_000_000_000  # firings that are late by no more are made up for


class Trigger:
    """Base of triggers; one of your own is named by an entry point of the group `chappe.triggers`.

    It fires when `arrived` or `due` says so.
    """

    missed = 0  # firings that were skipped because nobody asked in time

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def hears(self, position: int) -> bool:
        """Whether it must get every event of that input; of the others the newest is enough when it fires."""
        return True

    def arrived(self, position: int, now_ns: int) -> bool:
        """A new value of that input passed the filter and is in the table."""
        return False

    def deadline_ns(self) -> int | None:
        """When to ask `due`; None: never. A time that is over: at once."""
        return None

    def due(self, now_ns: int) -> int | None:
        """The time that it fires for, or None."""
        return None


class TimeTrigger(Trigger):
    """Fires at every multiple of an interval: deadlines are absolute, so that a late firing delays no other (GS-138).

    One that is late is made up for, up to a bound: a subscriber of every tenth value gets it. Streams of the same
    interval are in phase with each other wherever they are made.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._interval_ns = setup.function.interval_ns
        self._next_ns = 0

    def hears(self, position: int) -> bool:
        return False

    def deadline_ns(self) -> int | None:
        return self._next_ns

    def due(self, now_ns: int) -> int | None:
        interval_ns, next_ns = self._interval_ns, self._next_ns
        last_ns = now_ns - now_ns % interval_ns
        if not next_ns or next_ns - now_ns > 2 * interval_ns:  # the first time, or the clock was set back
            self._next_ns = last_ns + interval_ns
            return None
        if now_ns < next_ns:
            return None
        if last_ns - next_ns > LATE_NS:
            self.missed += (last_ns - next_ns) // interval_ns
            next_ns = last_ns
        self._next_ns = next_ns + interval_ns
        return next_ns


class EventTrigger(Trigger):
    """Fires when `count` distinct inputs have had an event since it fired last; 0: all of them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._needed = setup.function.count or len(setup.inputs)
        self._seen: set[int] = set()

    def arrived(self, position: int, now_ns: int) -> bool:
        self._seen.add(position)
        if len(self._seen) < self._needed:
            return False
        self._seen.clear()
        return True


class AlertTrigger(EventTrigger):
    """Fires when `count` distinct alerts have come since it fired last; 0: all that are inputs."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._alerts = setup.alerts
        self._needed = setup.function.count or len(self._alerts)

    def hears(self, position: int) -> bool:
        return position in self._alerts

    def arrived(self, position: int, now_ns: int) -> bool:
        return position in self._alerts and super().arrived(position, now_ns)


KINDS: dict[str, type[Trigger]] = {"time": TimeTrigger, "event": EventTrigger, "alert": AlertTrigger}


def trigger_of(setup: Setup) -> Trigger:
    """The trigger that a checked function names; loads the entry point if it is one."""
    kind, _, name = setup.function.trigger.partition(":")
    if kind != "entry":
        return KINDS[kind](setup)
    made = load(TRIGGERS, name)(setup)
    if not isinstance(made, Trigger):
        raise TypeError(f"entry point {name!r} makes a {type(made).__name__}, not a Trigger")
    return made
