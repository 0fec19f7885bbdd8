"""Violations and estimates of the watches of one client: the detector, tied to the loop and the watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from chappe.client._status import StatusEvent, Watch
from chappe.client.extrapolation import Estimator, Extrapolator
from chappe.client.intervals import interval_ns
from chappe.client.quality import Seconds
from chappe.client.violations import Detector, Terms, Violation

LONGEST_S = 3600.0  # a timer looks again at least so often, whatever the wall clock does


@dataclass(frozen=True, slots=True)
class Supervision:
    """How a watch is supervised: who is called for a violation, and what replaces missing values."""

    on_violation: Callable[[Violation[Watch]], None] | None = None
    slack_ns: int | None = None
    extrapolator: Extrapolator | None = None

    @classmethod
    def of(
        cls,
        on_violation: Callable[[Violation[Watch]], None] | None,
        slack: Seconds | None,
        extrapolator: Extrapolator | None,
    ) -> Supervision:
        """As a user says it, with the slack in seconds; ValueError if that is negative."""
        return cls(on_violation, None if slack is None else interval_ns(slack), extrapolator)

    @property
    def needed(self) -> bool:
        return self.on_violation is not None or self.extrapolator is not None


class Watchdog:
    """One timer for all watches; calls back with violations, or replaces missing values by estimates."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self.on_any: Callable[[Watch, str, Violation[Watch]], None] | None = None  # of all watches
        self._report = report
        self._detector: Detector[Watch] = Detector()
        self._supervisions: dict[Watch, Supervision] = {}
        self._estimators: dict[Watch, Estimator] = {}
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, watch: Watch, supervision: Supervision, mode: int) -> None:
        """Look after a watch that the node has admitted."""
        self.forget(watch)
        if not supervision.needed and self.on_any is None:
            return
        if supervision.extrapolator is not None:
            if watch.type not in ("int", "float"):
                raise TypeError(f"only int and float are extrapolated; {watch.variable} is of type {watch.type}")
            self._estimators[watch] = Estimator(supervision.extrapolator)
        self._supervisions[watch] = supervision
        watch.tap(self._received)
        self.retime(watch, mode)

    def forget(self, watch: Watch) -> None:
        """Look after it no more."""
        if self._supervisions.pop(watch, None) is not None:
            watch.untap(self._received)
            self._detector.forget(watch)
            self._estimators.pop(watch, None)

    def retime(self, watch: Watch, mode: int) -> None:
        """The terms of a watch may have changed: admitted again, or another mode is in force."""
        supervision = self._supervisions.get(watch)
        if supervision is None or watch.quality is None:
            return
        every = watch.quality.every.get(mode)
        if every is None:
            self._detector.forget(watch)  # it does not live in this mode
            return
        terms = Terms(
            watch.rate_num,
            watch.rate_den,
            every,
            watch.quality.slowest_ns,
            watch.quality.bound_ns(mode),
            supervision.slack_ns,
        )
        self._detector.follow(watch, terms, time.time_ns())
        self._arm()

    def announce(self) -> None:
        """A mode change is coming (GS-115)."""
        self._detector.announce()

    def settle(self, mode: int) -> None:
        """A mode is in force."""
        for watch in self._supervisions:
            self.retime(watch, mode)
        self._detector.settle(time.time_ns())
        self._arm()

    def close(self) -> None:
        """No more calls."""
        if self._timer is not None:
            self._timer.cancel()
        for watch in list(self._supervisions):
            self.forget(watch)

    @property
    def suppressed(self) -> int:
        """Violations that were not reported because the mode was changing."""
        return self._detector.suppressed

    def _received(self, event: StatusEvent) -> None:
        estimator = self._estimators.get(event.watch)
        if estimator is not None:
            estimator.add(event.created, event.value)
        violation = self._detector.received(event.watch, event.created, event.received)
        if violation is not None:
            self._handle(violation)

    def _arm(self) -> None:
        deadline = self._detector.deadline_ns
        if deadline is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_s = min(max((deadline - time.time_ns()) / 1e9, 0.0), LONGEST_S)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._check)

    def _check(self) -> None:
        self._timer = None
        for violation in self._detector.tick(time.time_ns()):
            self._handle(violation)
        self._arm()

    def _handle(self, violation: Violation[Watch]) -> None:
        watch = violation.watch
        assert watch.quality is not None
        watch.quality.violations[violation.kind] += violation.count
        try:
            estimated = violation.kind == "missed" and self._insert_estimate(watch, violation)
            if self.on_any is not None:
                self.on_any(watch, "extrapolated" if estimated else violation.kind, violation)
            if estimated:
                return
            call = self._supervisions[watch].on_violation
            if call is not None:
                call(violation)
        except Exception as error:  # of the user's function: it must not stop the timer
            self._report(error)

    def _insert_estimate(self, watch: Watch, violation: Violation[Watch]) -> bool:
        """Put an estimate in the place of the value that did not come; False if there is none."""
        estimator = self._estimators.get(watch)
        if estimator is None:
            return False
        try:
            value = estimator.at(violation.nominal_ns)
        except ValueError:
            return False
        event = watch.estimate(round(value) if watch.type == "int" else value, violation.nominal_ns, violation.at_ns)
        if watch.callback is not None:
            watch.callback(event)
        return True
