from collections.abc import Sequence

from chappe.measure.cost import Metrics
from chappe.measure.links import Links
from chappe.measure.readings import Reading, Settings

class Evaluation:
    """The arrays of `Links` and of what belongs to it; `bind` again whenever these have grown."""

    def __init__(self, links: Links, settings: Settings) -> None: ...
    def bind(self) -> None:
        """Take the arrays as they are now."""
    def clear(self, row: int) -> None:
        """Whatever is found out about the row is news."""
    def quiet(self, row: int, advertised: Sequence[tuple[float, float]], metrics: Metrics) -> None:
        """No reading of the row while its cost by each profile of `settings.advertised` is no further from the first
        number than the second says, or than samples vary by. The costs were made of these metrics."""
    def evaluate(
        self, samples: list[tuple[int, int]], lost: set[int], news: set[int], now_ns: int
    ) -> tuple[list[Reading], list[int], list[int]]:
        """Take new samples (row, round trip) into their windows: readings of these rows, of those that lost probes and
        of those that have other news, the rows that went back to their base interval, and those whose level changed."""
