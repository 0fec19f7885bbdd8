"""Numbers that the whole system agrees on."""

from __future__ import annotations

from typing import Final

MODES: Final = 16  # states of operation of a network; the engine has the same number in `engine/_entries.pxd`
ALL_MODES: Final = (1 << MODES) - 1  # as a bit mask
CELL_ID_BYTES: Final = 8
MAX_HOPS: Final = 64  # of a parcel
MAX_NAME_BYTES: Final = 255  # of a client of a cell
