"""Whether something is looked for by a link."""

from __future__ import annotations

from enum import IntEnum


class Asked(IntEnum):
    """Of a variable and a link."""

    NO = 0
    LEAVING = 1  # it was looked for there a moment ago, and is by another link now
    YES = 2
