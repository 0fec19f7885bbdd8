from collections.abc import Sequence

PROTOCOLS: tuple[str, ...]

def quantile(histogram: Sequence[int], share: float) -> int:
    """The value in ns below which that share of all noted latencies lies (upper edge of its bucket)."""
