"""What is wrong with a request of a client, before anything is looked up."""

from __future__ import annotations

import re

from chappe.security.patterns import AddressPattern, PatternError, topic_address, variable_address
from chappe.wire import control
from chappe.wire.constants import ALL_MODES, MODES

TYPES = ("int", "float", "bool", "bytes")
NAME_BYTES = 255
LARGEST = 1 << 62
MOST_PATHS = 16
SHORT = NAME_BYTES // 4  # letters that have no more than NAME_BYTES bytes in UTF-8
_STRUCT = re.compile(r"struct:[^:\s]{1,128}:[0-9A-Za-z]{1,64}")
_PLAIN_PUBLISHER = re.compile(r"[^/+#:]+")
_PLAIN_VARIABLE = re.compile(r"[^/+#]+(?:/[^/+#]+)*")


def bad_register(request: control.Register) -> str | None:
    """Why a variable cannot be registered so, or None."""
    problem = _bad_name(request.publisher, request.variable)
    if problem:
        return problem
    if request.type not in TYPES and not _STRUCT.fullmatch(request.type):
        return f"type {request.type[:40]!r} is unknown; use one of {', '.join(TYPES)}, or struct:NAME:HASH"
    if not 0 <= request.rate_num < LARGEST or not 0 < request.rate_den < LARGEST:
        return f"rate {request.rate_num}/{request.rate_den} is not a rational of events in nanoseconds (0/1 for alerts)"
    if not 0 <= request.priority <= 6:
        return f"priority {request.priority} is not in 0 .. 6"
    if not 0 <= request.options <= 255:
        return f"{request.options} option blocks are not in 0 .. 255"
    if not 0 <= request.slowest_ns < LARGEST or not 0 <= request.minimum_ns < LARGEST:
        return f"slowest_ns {request.slowest_ns} or minimum_ns {request.minimum_ns} is out of range"
    if request.minimum_ns and request.rate_num:
        return f"minimum_ns {request.minimum_ns} is for alerts; {request.publisher}/{request.variable} has a rate"
    if request.patterns:
        return _bad_patterns(request)
    return None


def _bad_patterns(request: control.Register) -> str | None:
    numbers = [pattern.number for pattern in request.patterns]
    if len(numbers) > request.options:
        return f"{len(numbers)} derived values need as many option blocks; there are {request.options}"
    if len(set(numbers)) < len(numbers):
        return f"derived values {numbers} have a number twice"
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
    if not 0 < request.modes <= ALL_MODES:
        return f"modes {request.modes:#x} is not a mask of 16 bits with at least one set"
    if request.qos:
        return _bad_qos(request.qos)
    return None


def _bad_qos(wanted: tuple[control.Qos, ...]) -> str | None:
    if len(wanted) not in (1, MODES):
        return f"qos has {len(wanted)} entries; give one for all modes, or {MODES}"
    for qos in wanted:
        times = (qos.interval_ns, qos.latency_ns, qos.worst_interval_ns, qos.worst_latency_ns)
        if not all(0 <= value < LARGEST for value in times):
            return f"qos: an interval or latency of {times} ns is out of range"
        if not 1 <= qos.redundancy <= MOST_PATHS or not 0 <= qos.worst_redundancy <= qos.redundancy:
            return f"qos: redundancy {qos.redundancy} (at worst {qos.worst_redundancy}) is not in 1 .. {MOST_PATHS}"
        if not 0 <= qos.priority <= 6 or not 0 <= qos.worst_priority <= 6:
            return f"qos: priority {qos.priority} (at worst {qos.worst_priority}) is not in 0 .. 6"
        if not 0 <= qos.security <= 2:
            return f"qos: security {qos.security} is not 0 (any), 1 (authentic) or 2 (encrypted)"
    return None


def bad_find(request: control.Find) -> str | None:
    """Why variables cannot be looked for so, or None."""
    try:
        space = AddressPattern.address(request.pattern).space
    except PatternError as error:
        return str(error)
    return None if space == "text" else f"{request.pattern[:80]!r} is no pattern over publisher/variable"


def bad_subscribe(request: control.Subscribe) -> str | None:
    """Why a topic cannot be subscribed to so, or None."""
    if request.kind not in ("s", "i", "l"):
        return f"kind {request.kind[:10]!r} is none to subscribe to; s, i or l (an inbox is opened by its owner)"
    if len(request.group.encode(errors="replace")) > NAME_BYTES:
        return f"the name of a group has at most {NAME_BYTES} bytes"
    try:
        AddressPattern.address(topic_address(request.kind, request.pattern))
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
        exact = AddressPattern.address(variable_address(publisher, variable)).exact
    except PatternError as error:
        return str(error)
    return None if exact else f"{publisher}/{variable}: + and # are for patterns, not for the name of a variable"
