"""What is wrong with a request of a client, before anything is looked up."""

from __future__ import annotations

import re

from chappe.security.patterns import Pattern, PatternError, topic_address, variable_address
from chappe.wire import control

TYPES = ("int", "float", "bool", "bytes")
NAME_BYTES = 255
LARGEST = 1 << 62
SHORT = NAME_BYTES // 4  # letters that have no more than NAME_BYTES bytes in UTF-8
_PLAIN_PUBLISHER = re.compile(r"[^/+#:]+")
_PLAIN_VARIABLE = re.compile(r"[^/+#]+(?:/[^/+#]+)*")


def bad_register(request: control.Register) -> str | None:
    """Why a variable cannot be registered so, or None."""
    problem = _bad_name(request.publisher, request.variable)
    if problem:
        return problem
    if request.type not in TYPES:
        return f"type {request.type[:40]!r} is unknown; use one of {', '.join(TYPES)}"
    if not 0 <= request.rate_num < LARGEST or not 0 < request.rate_den < LARGEST:
        return f"rate {request.rate_num}/{request.rate_den} is not a rational of events in nanoseconds (0/1 for alerts)"
    if not 0 <= request.priority <= 6:
        return f"priority {request.priority} is not in 0 .. 6"
    if not 0 <= request.options <= 255:
        return f"{request.options} option blocks are not in 0 .. 255"
    return None


def bad_watch(request: control.Watch) -> str | None:
    """Why a variable cannot be watched so, or None."""
    problem = _bad_name(request.publisher, request.variable)
    if problem:
        return problem
    if not 0 <= request.interval_ns < LARGEST:
        return f"interval_ns {request.interval_ns} is out of range"
    if not 0 <= request.priority <= 6:
        return f"priority {request.priority} is not in 0 .. 6"
    if not 0 < request.modes <= 0xFFFF:
        return f"modes {request.modes:#x} is not a mask of 16 bits with at least one set"
    return None


def bad_subscribe(request: control.Subscribe) -> str | None:
    """Why a topic cannot be subscribed to so, or None."""
    if request.kind not in ("s", "i", "l"):
        return f"kind {request.kind[:10]!r} is unknown; s, i or l"
    if len(request.group.encode(errors="replace")) > NAME_BYTES:
        return f"the name of a group has at most {NAME_BYTES} bytes"
    try:
        Pattern.address(topic_address(request.kind, request.pattern))
    except PatternError as error:
        return str(error)
    return None


def _bad_name(publisher: str, variable: str) -> str | None:
    if (
        len(publisher) <= SHORT and len(variable) <= SHORT
        and _PLAIN_PUBLISHER.fullmatch(publisher) and _PLAIN_VARIABLE.fullmatch(variable)
    ):  # fmt: skip
        return None  # most names: nothing below could say more
    for what, name in (("publisher", publisher), ("variable", variable)):
        if len(name.encode(errors="replace")) > NAME_BYTES:
            return f"the name of a {what} has at most {NAME_BYTES} bytes"
    try:
        exact = Pattern.address(variable_address(publisher, variable)).exact
    except PatternError as error:
        return str(error)
    return None if exact else f"{publisher}/{variable}: + and # are for patterns, not for the name of a variable"
