"""Levels of topics and of patterns, as sets: what a pattern covers and which patterns meet. Once, for everybody.

Levels are separated by `/`. In a pattern `+` stands for one level, and `#`, as its last level, for the rest and for the
parent. A topic is a pattern of one topic. The engine's topic table (`engine/_topics_trie.pyx`) keeps the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence

ONE = "+"
REST = "#"

Levels = tuple[str, ...]


def levels_of(text: str) -> Levels:
    """The levels of a topic or pattern; patterns of the same topics have the same levels."""
    levels = tuple(text.split("/"))
    return levels[1:] if levels == (ONE, REST) else levels  # no topic has zero levels: `+/#` is `#`


def pattern_problem(text: str) -> str:
    """What is wrong with the levels of a pattern; empty: nothing."""
    levels = text.split("/")
    for place, level in enumerate(levels):
        if not level:
            return "it has an empty level: no '/' at the ends, none doubled"
        if level == REST and place + 1 < len(levels):
            return "'#' is the last level or none"
        if level not in (ONE, REST) and has_wildcard(level):
            return f"'+' and '#' stand for whole levels, not for parts like {level[:40]!r}"
    return ""


def has_wildcard(text: str) -> bool:
    """Whether a valid pattern can match more than one topic."""
    return ONE in text or REST in text


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a topic is one of the pattern's."""
    return levels_cover(levels_of(pattern), levels_of(topic))


def levels_cover(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Whether every topic of `narrow` is one of `wide`."""
    for place, level in enumerate(wide):
        if level == REST:
            return True
        if place == len(narrow):
            return False
        other = narrow[place]
        if other == REST or (level != ONE and level != other):
            return False
    return len(narrow) == len(wide)


def levels_overlap(one: Sequence[str], two: Sequence[str]) -> bool:
    """Whether some topic is in both."""
    for left, right in zip(one, two, strict=False):
        if REST in (left, right):
            return True
        if left != right and ONE not in (left, right):
            return False
    longer, length = (one, len(two)) if len(one) > len(two) else (two, len(one))
    return len(one) == len(two) or longer[length] == REST
