"""Names of cells and the distance between them, by which every decision comes nearer to its destination (BF-03)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from chappe.wire.parcels import CELL_ID_BYTES, MAX_NAME_BYTES

ANY = "*"
_BASE = 257  # a digit is a byte + 1; 0 stands where a name has ended
_POWERS: tuple[int, ...] = tuple(_BASE**exponent for exponent in range(MAX_NAME_BYTES + 1))
_REMEMBERED = 16_384  # positions and intervals, at most about 300 bytes each


@lru_cache(maxsize=_REMEMBERED)
def check_name(name: str) -> str:
    """The name, if it can be one: 1 to 255 bytes of UTF-8 without `*`; ValueError says what is wrong (BF-02)."""
    _check_text(name)
    if ANY in name:
        raise ValueError(f"the name {name!r} contains '*', which ends a prefix of names and is in no name")
    return name


def check_destination(destination: str) -> str:
    """The destination, if it can be one: a name, or a prefix and `*`; ValueError says what is wrong."""
    if not destination.endswith(ANY):
        return check_name(destination)
    _check_text(destination)
    if destination.index(ANY) != len(destination) - 1:
        raise ValueError(f"the destination {destination!r} has '*' before its end")
    return destination


def _check_text(text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} cannot be written as UTF-8") from None
    if not 1 <= length <= MAX_NAME_BYTES:
        raise ValueError(f"a name has 1 to {MAX_NAME_BYTES} bytes, not {length}: {text[:40]!r}")


def cell_id(address: str) -> bytes:
    """By what parcels name the cell at this node: the first 8 bytes of SHA-256 of "unit/name"."""
    return sha256(address.encode()).digest()[:CELL_ID_BYTES]


@lru_cache(maxsize=_REMEMBERED)
def position(name: str) -> int:
    """Where a name stands among all names: its bytes as digits to base 257, all names padded to the longest.

    One length for all, so that distances between different pairs can be compared.
    """
    number = 0
    digits = name.encode()
    for byte in digits:
        number = number * _BASE + byte + 1
    return number * _POWERS[MAX_NAME_BYTES - len(digits)]


@lru_cache(maxsize=_REMEMBERED)
def interval(destination: str) -> tuple[int, int]:
    """First and last position of a destination: of all names with that prefix if it ends with `*`."""
    if not destination.endswith(ANY):
        place = position(destination)
        return place, place
    prefix = destination.removesuffix(ANY)
    first = position(prefix)
    return first, first + _POWERS[MAX_NAME_BYTES - len(prefix.encode())] - 1


def distance(a: str, b: str) -> int:
    """How far two names are from each other; exact, and strictly monotone in lexicographic order (BF-03)."""
    return abs(position(a) - position(b))


def gap(name: str, destination: str) -> int:
    """How far a name is from a destination; 0 for all names with the prefix if it ends with `*`."""
    first, last = interval(destination)
    place = position(name)
    return first - place if place < first else place - last if place > last else 0


def least_gap(names: Iterable[str], destination: str) -> int | None:
    """How far a cell with these names is from a destination; None without names: it is nowhere."""
    first, last = interval(destination)
    least = None
    for name in names:  # a plain loop: half of the time of every decision is spent here
        place = position(name)
        here = first - place if place < first else place - last if place > last else 0
        if least is None or here < least:
            least = here
    return least


def nearest(names: Iterable[str], destination: str) -> str | None:
    """The name of least gap to a destination, the smaller one of two; None if there are no names."""
    return min(names, key=lambda name: (gap(name, destination), name), default=None)
