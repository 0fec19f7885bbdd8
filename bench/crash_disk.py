"""A disk that loses what was not synced: from a trace of system calls, every state that a power cut may leave.

The rules are the strictest that POSIX allows. What was written to a file is there for good when that file was synced
afterwards, and a name when its folder was. Until then each write may be there, be missing, or be there in part, by
sectors of 512 bytes, whatever happened to the writes before and after it. After a sync that failed nothing that waited
for it becomes safe by a later one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
Image = dict[str, bytes | None]
"""Files (content) and folders (None) by path below the root."""
_HEAD = struct.Struct("<cQQII")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call; `one` and `two` are paths or content."""

    kind: str
    inode: int
    at: int
    one: bytes
    two: bytes


def load(path: Path) -> list[Call]:
    """The calls that a traced process made."""
    content, at, calls = path.read_bytes(), 0, []
    while at < len(content):
        kind, inode, place, one, two = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        calls.append(Call(kind.decode(), inode, place, content[at : at + one], content[at + one : at + one + two]))
        at += one + two
    return calls


@dataclass(frozen=True, slots=True)
class Loss:
    """What a power cut does to one call that is not safe: all of it is gone, or what lies in [begin, end) of it."""

    call: int
    begin: int = 0
    end: int = -1
    zeros: bool = False  # the file is as long as if it were there

    def __str__(self) -> str:
        if self.end < 0:
            return f"call {self.call} lost"
        zeros = ", zeros in their place" if self.zeros else ""
        return f"bytes {self.begin} to {self.end} of call {self.call} lost{zeros}"


@dataclass(slots=True)
class _File:
    calls: list[int] = field(default_factory=list)  # all that changed its content, in order
    unsafe: list[int] = field(default_factory=list)  # those of them that are not synced


class Disk:
    """What calls up to a moment have done; `advance` goes on to the next moment."""

    def __init__(self, root: Path, calls: list[Call]) -> None:
        self._root = str(root)
        self.calls = calls
        self.now = 0  # calls that have happened
        self.acknowledged: list[bytes] = []
        self._files: list[_File] = []
        self._by_inode: dict[int, int] = {}
        self._created: dict[int, int] = {}  # the file that a call made
        self._entries: list[int] = []  # calls that change names, in order
        self._unsafe: list[int] = []  # those of them whose folder is not synced
        self._condemned: set[int] = set()  # calls that waited for a sync that failed

    def advance(self) -> None:
        number, call = self.now, self.calls[self.now]
        self.now += 1
        match call.kind:
            case "A":
                self.acknowledged.append(call.one)
            case "C":
                self._files.append(_File())
                self._by_inode[call.inode] = self._created[number] = len(self._files) - 1
                self._name(number)
            case "R" | "U" | "M" | "X" | "L":
                self._name(number)
            case "W" | "T":
                file = self._of(call)
                file.calls.append(number)
                file.unsafe.append(number)
            case "S":
                file = self._of(call)
                file.unsafe = [each for each in file.unsafe if each in self._condemned]
            case "F" if call.two:
                self._condemned.update(each for each in self._unsafe if self._folder(each) == call.one)
            case "F":
                self._condemned.update(self._of(call).unsafe)
            case "D":
                self._unsafe = [
                    each for each in self._unsafe if each in self._condemned or self._folder(each) != call.one
                ]

    def losses(self, tears: int) -> list[frozenset[Loss]]:
        """What a power cut at this moment may take: nothing, all that is not safe, or one call alone, whole or torn."""
        unsafe = [*self._unsafe, *(each for file in self._files for each in file.unsafe)]
        found = [frozenset[Loss](), frozenset(Loss(each) for each in unsafe)]
        for each in unsafe:
            found.append(frozenset([Loss(each)]))
            found += [frozenset([loss]) for loss in self._torn(each, tears)]
        return found

    def image(self, losses: frozenset[Loss]) -> Image:
        """Files (content) and folders (None) that are left, by path below the root."""
        names: dict[str, int] = {}
        folders = {self._root}
        gone = {loss.call for loss in losses if loss.end < 0}
        for number in self._entries:
            if number not in gone:
                self._apply(number, names, folders)
        seen = {path: None for path in folders if path != self._root and self._reached(path, folders)}
        left: Image = {path[len(self._root) + 1 :]: content for path, content in seen.items()}
        for path, file in names.items():
            if self._reached(path, folders) and not path.endswith("-shm"):
                left[path[len(self._root) + 1 :]] = self._content(file, losses)
        return left

    def _of(self, call: Call) -> _File:
        return self._files[self._by_inode[call.inode]]

    def _name(self, number: int) -> None:
        self._entries.append(number)
        self._unsafe.append(number)

    def _folder(self, number: int) -> bytes:
        call = self.calls[number]
        return os.path.dirname(call.two or call.one)

    def _torn(self, number: int, tears: int) -> Iterator[Loss]:
        """A write of which only what lies before, or behind, the border of a sector is there."""
        call = self.calls[number]
        if call.kind != "W":
            return
        first = SECTOR - call.at % SECTOR
        borders = list(range(first, len(call.one), SECTOR))
        step = max(1, len(borders) // tears)
        yield Loss(number, 0, len(call.one), zeros=True)
        for border in borders[::step]:
            yield Loss(number, border, len(call.one))
            yield Loss(number, 0, border)

    def _apply(self, number: int, names: dict[str, int], folders: set[str]) -> None:
        call = self.calls[number]
        one, two = os.fsdecode(call.one), os.fsdecode(call.two)
        match call.kind:
            case "C":
                names[one] = self._created[number]
            case "M":
                folders.add(one)
            case "X":
                folders.discard(one)
            case "U":
                names.pop(one, None)
            case "R" if one in names:
                names[two] = names.pop(one)
            case "L" if one in names:
                names[two] = names[one]

    def _reached(self, path: str, folders: set[str]) -> bool:
        while (path := os.path.dirname(path)) != self._root:
            if path not in folders:
                return False
        return True

    def _content(self, number: int, losses: frozenset[Loss]) -> bytes:
        file = self._files[number]
        mine = {loss.call: loss for loss in losses if loss.call in file.calls}
        content = bytearray()
        for each in file.calls:
            call, loss = self.calls[each], mine.get(each)
            if loss is not None and loss.end < 0:
                continue
            if call.kind == "T":
                del content[call.at :]
                content.extend(bytes(call.at - len(content)))
                continue
            begin, end = (0, len(call.one)) if loss is None else _kept(loss, len(call.one))
            size = len(call.one) if loss is not None and loss.zeros else end
            content.extend(bytes(max(0, call.at + size - len(content))))
            content[call.at + begin : call.at + end] = call.one[begin:end]
        return bytes(content)


def _kept(loss: Loss, size: int) -> tuple[int, int]:
    return (0, loss.begin) if loss.end == size else (loss.end, size)


def digest(image: Image) -> bytes:
    """The same for the same files and folders."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(image):
        content = image[path]
        found.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        found.update(content or b"")
    return found.digest()


def materialise(image: Image, folder: Path) -> None:
    """Put it there, in place of what was there before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path, content in sorted(image.items(), key=lambda item: (item[1] is not None, item[0])):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(content)
