import numpy as np
from numpy.typing import NDArray

class Probes:
    """Tokens of probes that wait for an answer, and an outcome for each of the last 100 a row.

    A probe without an answer in time counts as lost; if the answer comes after all, it counts as answered.
    """

    sequence: NDArray[np.int64]  # of the last probe of each row
    lost: NDArray[np.int64]  # among the last 100
    def __init__(self, first_token: int, late_ns: int) -> None: ...
    def grow(self, rows: int) -> None:
        """Room for more rows."""
    def clear(self, row: int) -> None:
        """The row belongs to another link from now on."""
    def abandon(self, row: int) -> None:
        """Answers to probes that are under way do not count any more, nor does it count if there are none."""
    def send(self, row: int, now_ns: int, timeout_ns: int) -> int:
        """The token of a new probe."""
    def sent_ns(self, row: int, token: int) -> int | None:
        """When a probe of this row that waits for its answer was sent; None if there is no such probe."""
    def answered(self, token: int) -> bool:
        """The probe got its answer; True if it had been taken for lost."""
    def expire(self, now_ns: int) -> list[int]:
        """Rows with a probe whose time is up, once for each such probe."""
    def next_ns(self) -> int:
        """When `expire` may find something."""
