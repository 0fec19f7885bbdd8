"""A Hilbert curve through a space of whole coordinates, over arrays of points, and who owns which part of it.

Points that are near on the curve are near in the space, so whoever owns an arc of the curve owns a region. The first
coordinate is the first axis; two points next to each other on the curve differ by one in one coordinate (CN-018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Whole = NDArray[np.int64]

MOST_BITS = 62  # of an index, which must fit a signed 64-bit column with room for a length


def indices(points: ArrayLike, bits: int) -> Whole:
    """Where each point (a row of coordinates from 0 to 2**bits - 1) lies on the curve."""
    axes = _axes(points, bits)
    dimensions = axes.shape[1]
    x = [axes[:, axis].copy() for axis in range(dimensions)]
    for plane in range(bits - 1, 0, -1):  # undo the turns of the sub-cubes, the largest first
        for axis in range(dimensions):
            _turn(x, axis, plane)
    for axis in range(1, dimensions):
        x[axis] ^= x[axis - 1]
    last = np.zeros_like(x[0])
    for plane in range(bits - 1, 0, -1):
        last ^= np.where(x[-1] >> plane & 1, (1 << plane) - 1, 0)
    found = np.zeros_like(x[0])
    for plane in range(bits - 1, -1, -1):
        for axis in range(dimensions):
            found = found << 1 | ((x[axis] ^ last) >> plane & 1)
    return found


def points(places: ArrayLike, dimensions: int, bits: int) -> Whole:
    """The point at each place of the curve, a row each: the inverse of `indices` (CN-019)."""
    _check(dimensions, bits)
    along = np.asarray(places, dtype=np.int64)
    x = [np.zeros_like(along) for _ in range(dimensions)]
    for plane in range(bits):
        for axis in range(dimensions):
            x[axis] |= (along >> (plane * dimensions + dimensions - 1 - axis) & 1) << plane
    last = x[-1] >> 1
    for axis in range(dimensions - 1, 0, -1):
        x[axis] ^= x[axis - 1]
    x[0] ^= last
    for plane in range(1, bits):
        for axis in range(dimensions - 1, -1, -1):
            _turn(x, axis, plane)
    return np.stack(x, axis=1)


def runs(low: ArrayLike, high: ArrayLike, bits: int) -> Whole:
    """The fewest runs of the curve that cover the box from `low` to `high` (both inside), as rows of first and last.

    Level by level: a sub-cube inside the box is taken, one outside dropped, the others are split (section 2.7.3).
    """
    least, most = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
    dimensions = len(least)
    _check(dimensions, bits)
    prefixes, taken = np.zeros(1, dtype=np.int64), []
    for level in range(bits + 1):
        below = bits - level
        corner = points(prefixes << dimensions * below, dimensions, bits) >> below << below
        inside = ((corner >= least) & (corner + (1 << below) - 1 <= most)).all(axis=1)
        apart = ((corner > most) | (corner + (1 << below) - 1 < least)).any(axis=1)
        first = prefixes[inside] << dimensions * below
        taken.append(np.stack((first, first + (1 << dimensions * below) - 1), axis=1))
        split = prefixes[~inside & ~apart]
        prefixes = (split[:, None] << dimensions | np.arange(1 << dimensions)).ravel()
    found = np.concatenate(taken)
    found = found[np.argsort(found[:, 0])]
    starts = np.ones(len(found), dtype=np.bool_)
    starts[1:] = found[1:, 0] != found[:-1, 1] + 1
    ends = np.roll(starts, -1)
    return np.stack((found[starts, 0], found[ends, 1]), axis=1) if len(found) else found


@dataclass(frozen=True, slots=True)
class Arcs:
    """Owners of a curve of `size` places: each owns what lies after the one before it up to its own place (CN-014)."""

    ends: Whole  # ascending, none twice
    size: int

    @classmethod
    def equal(cls, owners: int, size: int) -> Arcs:
        """Arcs of the same length, as far as there is one."""
        return cls(np.unique((np.arange(1, owners + 1) * size // owners - 1).astype(np.int64)), size)

    @classmethod
    def at(cls, places: ArrayLike, size: int) -> Arcs:
        """Arcs of owners at these places; two at one place are one owner."""
        ends = np.unique(np.asarray(places, dtype=np.int64))
        if not len(ends) or ends[0] < 0 or ends[-1] >= size:
            raise ValueError(f"owners of a curve of {size} places must be at places from 0 to {size - 1}")
        return cls(ends, size)

    def __len__(self) -> int:
        return len(self.ends)

    def owner(self, places: ArrayLike) -> Whole:
        """The number of the owner of each place."""
        return np.searchsorted(self.ends, np.asarray(places, dtype=np.int64)) % len(self.ends)

    def owners(self, spans: Whole) -> Whole:
        """The numbers of all owners of some part of these runs."""
        first, last = np.searchsorted(self.ends, spans[:, 0]), np.searchsorted(self.ends, spans[:, 1])
        if not len(spans):
            return np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]) % len(self))

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the space that each owns."""
        before = np.concatenate((self.ends[-1:] - self.size, self.ends[:-1]))
        return (self.ends - before) / self.size


def _turn(x: list[Whole], axis: int, plane: int) -> None:
    """Flip the lower bits of the first axis where this axis has the bit of the plane, else swap those of the two."""
    low = np.int64((1 << plane) - 1)
    has = (x[axis] >> plane & 1).astype(np.bool_)
    swapped = np.where(has, 0, (x[0] ^ x[axis]) & low)
    x[axis] ^= swapped  # for the first axis nothing, since it equals itself
    x[0] ^= np.where(has, low, swapped) if axis else np.where(has, low, 0)


def _axes(given: ArrayLike, bits: int) -> Whole:
    axes = np.asarray(given, dtype=np.int64)
    if axes.ndim != 2:
        raise ValueError(f"points must be rows of coordinates, not an array of {axes.ndim} dimensions")
    _check(axes.shape[1], bits)
    if axes.size and (axes.min() < 0 or axes.max() >> bits):
        raise ValueError(f"coordinates of a curve of {bits} bits are from 0 to {(1 << bits) - 1}")
    return axes


def _check(dimensions: int, bits: int) -> None:
    if dimensions < 1 or bits < 1 or dimensions * bits > MOST_BITS:
        raise ValueError(f"{dimensions} dimensions of {bits} bits: an index has from 1 to {MOST_BITS} bits in all")
