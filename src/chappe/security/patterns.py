"""Patterns of addresses as sets: does one contain another, do two meet.

An address is a topic (`grid/west/volts`), a typed topic (`int:42`, `long:42`), a node (`node:east/n7`), a variable
(`publisher/variable`), a command (`node/command`) or the name of a cell (`cell:fr.paris`, whose levels are separated by
dots). `+` is one level, `#` the rest and the parent. A string topic that
looks like a typed one is written `str:int:42`. Both questions are answered exactly, so that neither too much nor too
little is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from chappe.wire.topics import ONE, REST, levels_cover, levels_of, levels_overlap, pattern_problem

MAX_BYTES = 1024
OWN_NAME = "{name}"

Space = Literal["text", "int", "long", "node", "cell", "any"]
NODES = "node:"  # begins the address of a node
CELL = "c"  # kind of the destinations of parcels, where topics have theirs
CELLS = "cell:"  # begins the address of a name of a cell
_PREFIXES = ("int:", "long:", NODES, CELLS, "str:")
_BITS: dict[Space, int] = {"int": 32, "long": 64}


class PatternError(ValueError):
    """The text is no pattern; says why."""


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """A set of addresses of one space; the pattern `#` of a rule is the set of all addresses."""

    space: Space
    levels: tuple[str, ...]

    @classmethod
    def rule(cls, text: str) -> AddressPattern:
        """The pattern of a rule: a lone `#` means every address, typed topics too."""
        return cls("any", (REST,)) if text == REST else cls.address(text)

    @classmethod
    def address(cls, text: str) -> AddressPattern:
        """What is asked for: an address, or a pattern of string topics."""
        for space in _BITS:
            prefix, _, rest = text.partition(":")
            if prefix == space:
                return cls(space, (_number(rest, space),))
        if text.startswith(NODES):
            return cls("node", _levels(text.removeprefix(NODES)))
        if text.startswith(CELLS):
            return cls("cell", _name_levels(text.removeprefix(CELLS)))
        return cls("text", _levels(text.removeprefix("str:")))

    @property
    def exact(self) -> bool:
        """Whether it names a single address."""
        return not any(level in (ONE, REST) for level in self.levels)

    def with_name(self, name: str) -> AddressPattern:
        """The same with `{name}` replaced."""
        if OWN_NAME not in self.levels:
            return self
        own = name.split(".") if self.space == "cell" else [name]
        words = (own if level == OWN_NAME else [level] for level in self.levels)
        return replace(self, levels=tuple(word for each in words for word in each))

    def covers(self, other: AddressPattern) -> bool:
        """Whether every address of `other` is one of these."""
        if self.space == "any":
            return True
        return self.space == other.space and levels_cover(self.levels, other.levels)

    def overlaps(self, other: AddressPattern) -> bool:
        """Whether some address is in both."""
        if "any" in (self.space, other.space):
            return True
        return self.space == other.space and levels_overlap(self.levels, other.levels)


def topic_address(kind: str, topic: str) -> str:
    """The address of a topic of the wire: kind `s`, `i`, `l` or `n`, numbers as decimal text."""
    if kind == "n":
        return NODES + topic
    if kind == CELL:
        return cell_address(topic)
    if kind == "i":
        return f"int:{topic}"
    if kind == "l":
        return f"long:{topic}"
    return f"str:{topic}" if topic.startswith(_PREFIXES) else topic


def cell_address(name: str) -> str:
    """The address of a name of a cell; of a prefix, `fr.par*`, the least pattern that has all its names."""
    if not name.endswith("*"):
        return CELLS + name
    before, dot, _ = name.rpartition(".")
    return f"{CELLS}{before}{dot}#"


def variable_address(publisher: str, variable: str) -> str:
    """The address of a variable; a publisher holds no '/', so that two variables never share an address."""
    if "/" in publisher:
        raise PatternError(f"publisher {publisher[:80]!r} contains '/': a publisher is a single level")
    return f"{'str:' if publisher.startswith(_PREFIXES) else ''}{publisher}/{variable}"


def _number(text: str, space: Space) -> str:
    if text == REST:
        return ONE
    limit = 1 << (_BITS[space] - 1)
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text) or not -limit <= int(text) < limit:
        bits = _BITS[space]
        raise PatternError(f"{space}:{text[:40]} is no {bits}-bit integer; write {space}:42, or {space}:# for all")
    return text


def _name_levels(text: str) -> tuple[str, ...]:
    """Of a name of a cell, which may have any letters but `*`, or of a pattern of names."""
    if not text:
        raise PatternError("an address must not be empty")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise PatternError(f"an address has at most {MAX_BYTES} bytes")
    levels = tuple(text.split("."))
    if REST in levels[:-1]:
        raise PatternError(f"{text[:80]!r}: '#' is the last level or none")
    return levels[1:] if levels == (ONE, REST) else levels


def _levels(text: str) -> tuple[str, ...]:
    if not text:
        raise PatternError("an address must not be empty")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise PatternError(f"an address has at most {MAX_BYTES} bytes")
    problem = pattern_problem(text)
    if problem:
        raise PatternError(f"{text[:80]!r}: {problem}")
    return levels_of(text)
