"""A part of a log as bytes: frames of rows, each with its checksum, and marks between them.

A frame without rows is a mark: all before it was synced when it was written. A process that is killed, or a power cut,
can only take away what is behind the last mark. So bytes that are no frame and have a mark behind them are damage,
and those behind the last mark of the newest part are what was being written.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

_HEAD = struct.Struct("<IIqI")  # bytes that follow, their checksum, first offset, rows
HEAD = _HEAD.size
_AHEAD = 1 << 16  # bytes that are read at once to find the next heads
_ALIGNED = 4  # frames begin at multiples of this: the content of each is a multiple of 8 bytes
_WINDOW = 1 << 20  # words that are looked at together to find the next frame
_EFFORT = 16  # how often the bytes of a part are summed at most to find frames behind damage
_ROWS = 1 << 28  # of a frame, at most


class Frame(NamedTuple):
    """Where rows are in a part."""

    at: int  # of its content in the file
    size: int
    first: int
    rows: int
    checksum: int = 0

    @property
    def end(self) -> int:
        """Behind it in the file."""
        return self.at + self.size

    @property
    def stop(self) -> int:
        """The offset behind its rows."""
        return self.first + self.rows


class Damage(NamedTuple):
    """Bytes of a part that were synced and are no frame any more, and the rows that were in them."""

    at: int
    size: int
    first: int
    stop: int  # behind the last row that is lost; `first` if only a mark is

    def __str__(self) -> str:
        rows = f"rows {self.first} to {self.stop - 1} are lost" if self.stop > self.first else "no row is lost"
        return f"{self.size} bytes at {self.at} are damaged, {rows}"


@dataclass(frozen=True, slots=True)
class Content:
    """All that a part holds."""

    frames: list[Frame]  # whole ones with rows, in order; marks are left out
    damages: list[Damage]
    next: int  # the offset behind the last row, whether it is whole or not
    end: int  # of the last whole frame in the file
    torn: int  # bytes behind that


def encode(first: int, rows: int, content: bytes) -> bytes:
    """A frame; without rows a mark."""
    return _HEAD.pack(len(content), checksum(first, rows, content), first, rows) + content


def checksum(first: int, rows: int, content: bytes | memoryview) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<qI", first, rows)))


def examine(path: Path, first: int, stop: int | None = None) -> Content:
    """Read a part whose first row is `first` and sum everything; `stop` is the first row of the next part.

    Rows from `stop` on are not looked at: a part that failed to sync may hold some that the next one has. Those before
    it that are not there are damage. Without `stop` it is the newest part, and bytes behind its last frame are torn.
    """
    content = memoryview(path.read_bytes())
    frames: list[Frame] = []
    damages: list[Damage] = []
    proven = 0  # damages with a mark behind them: what was there had been synced
    at = 0
    while stop is None or first < stop:
        frame = _whole(content, at, first)
        if frame is None:
            frame = _following(content, at, first)
            if frame is None or (stop is not None and frame.first > stop):
                break
            damages.append(Damage(at, frame.at - HEAD - at, first, frame.first))
        if frame.rows:
            frames.append(frame)
        else:
            proven = len(damages)
        at, first = frame.end, frame.stop
    if stop is None and proven < len(damages):  # a disk writes in any order what is not synced
        at, first = damages[proven].at, damages[proven].first
        frames = [each for each in frames if each.first < first]
        del damages[proven:]
    rest = len(content) - at
    if stop is not None and first < stop:
        damages.append(Damage(at, rest, first, stop))
        first = stop
    return Content(frames, damages, first, at, rest)


def _whole(content: memoryview, at: int, expected: int) -> Frame | None:
    """The frame at a place, if it is whole and begins with the expected row."""
    if at + HEAD > len(content):
        return None
    size, given, first, rows = _HEAD.unpack_from(content, at)
    begin = at + HEAD
    if first != expected or begin + size > len(content):
        return None
    inside = content[begin : begin + size]
    return Frame(begin, size, first, rows, given) if checksum(first, rows, inside) == given else None


def _following(content: memoryview, at: int, expected: int) -> Frame | None:
    """The next whole frame behind damage: that which the damaged one points to, or else any that can be found."""
    if at + HEAD <= len(content):
        size, _, first, rows = _HEAD.unpack_from(content, at)
        if first == expected and rows < _ROWS:
            frame = _whole(content, at + HEAD + size, first + rows)
            if frame is not None:
                return frame
    left = _EFFORT * len(content)
    for place, first, size in _candidates(content, at + _ALIGNED, expected):
        left -= size
        if left < 0:
            return None
        frame = _whole(content, place, first)
        if frame is not None:
            return frame
    return None


def _candidates(content: memoryview, at: int, expected: int) -> Iterator[tuple[int, int, int]]:
    """Places where a frame may begin, by its head alone: place, first row and size."""
    words = np.frombuffer(content, "<u4", len(content) // _ALIGNED)
    head = HEAD // _ALIGNED
    for begin in range(at // _ALIGNED, len(words) - head + 1, _WINDOW):
        end = min(begin + _WINDOW, len(words) - head + 1)
        size = words[begin:end].astype(np.int64)
        first = words[begin + 2 : end + 2].astype(np.int64) | words[begin + 3 : end + 3].astype(np.int64) << 32
        rows = words[begin + 4 : end + 4]
        places = np.arange(begin, end, dtype=np.int64) * _ALIGNED
        fits = (first >= expected) & (first <= expected + _ROWS) & (rows < _ROWS) & (size % 8 == 0)
        fits &= ((rows == 0) == (size == 0)) & (places + HEAD + size <= len(content))
        yield from zip(places[fits].tolist(), first[fits].tolist(), size[fits].tolist(), strict=True)


def heads(descriptor: int, at: int, expected: int) -> Iterator[Frame]:
    """Frames from a place on, by their heads alone; ends before the first that cannot be whole.

    A mark is believed if its checksum is right and no row is missing before it: all before it was synced, so there is
    no need to read it.
    """
    end = os.fstat(descriptor).st_size
    held, begin = b"", 0
    while at + HEAD <= end:
        if not begin <= at <= begin + len(held) - HEAD:
            held, begin = os.pread(descriptor, _AHEAD, at), at
            if len(held) < HEAD:
                return
        frame = _head(held, at - begin, at)
        if frame.end > end or expected not in (-1, frame.first):
            return
        if frame.rows == 0 and (frame.size or frame.checksum != checksum(frame.first, 0, b"")):
            return
        yield frame
        at, expected = frame.end, frame.stop


def _head(held: bytes, inside: int, at: int) -> Frame:
    size, given, first, rows = _HEAD.unpack_from(held, inside)
    return Frame(at + HEAD, size, first, rows, given)


def content_of(descriptor: int, frame: Frame) -> bytes | None:
    """The content of a frame, or None if it is not what was written."""
    content = os.pread(descriptor, frame.size, frame.at)
    return content if checksum(frame.first, frame.rows, content) == frame.checksum else None
