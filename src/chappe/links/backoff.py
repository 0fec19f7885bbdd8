"""When to try again."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Delays before attempts: none before the first, then random ones below a bound that doubles up to a cap.

    Full jitter spreads those who lost the same node at the same moment.
    """

    def __init__(self, random: Callable[[], float], *, base_s: float = 0.05, cap_s: float = 1.0) -> None:
        """`random` gives numbers from 0 up to 1."""
        if not 0 < base_s <= cap_s:
            raise ValueError(f"backoff needs 0 < base ({base_s} s) <= cap ({cap_s} s)")
        self._random = random
        self._base_s = base_s
        self._cap_s = cap_s
        self.attempts = 0

    def next_s(self) -> float:
        """Seconds to wait before the next attempt."""
        failed, self.attempts = self.attempts, self.attempts + 1
        if failed == 0:
            return 0.0
        doublings = min(failed - 1, 64)
        return self._random() * min(self._cap_s, self._base_s * 2.0**doublings)

    def reset(self) -> None:
        """An attempt succeeded."""
        self.attempts = 0
