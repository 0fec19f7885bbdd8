"""The constants of the latency model from measured runs (GS-174), to put into `[latency_model]` of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chappe.errors import ChappeError
from chappe.status.topology import Model


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: how many routers were on the path, events a millisecond through each, mean latency."""

    routers: int
    events_per_ms: float
    mean_ms: float


@dataclass(frozen=True, slots=True)
class Fit:
    """`mean = reference + routers * (router + load * events_per_ms)`, in milliseconds."""

    reference_ms: float  # once a path
    router_ms: float  # each router, idle
    load_ms: float  # each router, more for one event a millisecond; the source gives its inverse, k

    def predict(self, routers: int, events_per_ms: float) -> float:
        """The mean latency in milliseconds that the model expects."""
        return self.reference_ms + routers * (self.router_ms + self.load_ms * events_per_ms)

    def error_ms(self, runs: Sequence[Run]) -> float:
        """Mean absolute error a run; ChappeError if there is none."""
        if not runs:
            raise ChappeError("the error of a latency model needs at least one run")
        return sum(abs(self.predict(run.routers, run.events_per_ms) - run.mean_ms) for run in runs) / len(runs)

    def model(self, events_per_s: float) -> Model:
        """The same for routers of that capacity, as a deployment says it; a slope below zero counts as none."""
        return Model(
            reference_us=max(0.0, self.reference_ms * 1000),
            router_us=max(0.0, self.router_ms * 1000),
            loaded_us=max(0.0, self.load_ms * events_per_s),
        )


def fit(runs: Sequence[Run]) -> tuple[Fit, float]:
    """The least-squares fit and its mean absolute error a run in milliseconds.

    ChappeError if the runs leave a constant open: they must differ in routers and, apart from that, in load.
    """
    rows = np.array([(1.0, run.routers, run.routers * run.events_per_ms) for run in runs]).reshape(len(runs), 3)
    measured = np.array([run.mean_ms for run in runs])
    if not (np.isfinite(rows).all() and np.isfinite(measured).all()):
        raise ChappeError("a run has a figure that is not finite; leave out runs that were not measured")
    constants, _, rank, _ = np.linalg.lstsq(rows, measured, rcond=None)
    if rank < 3:
        raise ChappeError(
            f"{len(runs)} runs do not determine the three constants of the latency model; "
            "measure different numbers of routers, and different loads over the same routers"
        )
    found = Fit(*(float(constant) for constant in constants))
    return found, found.error_ms(runs)
