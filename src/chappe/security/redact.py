"""Secrets never reach a log: tokens, private keys and PEM blocks are taken out of whatever is about to be written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

REMOVED = "[removed]"
_MAX_DEPTH = 12

# A field of this name is a secret whatever it holds: token, client_token, private_key, datagram_key, password …
_SECRET_FIELD = re.compile(
    r"(?:^|[_.-])(?:tokens?|secrets?|passw(?:or)?d|passphrase|authorization|credentials?|cookie|private|jwt)$"
    r"|[_.-]keys?$",
    re.IGNORECASE,
)
_KNOWN_PUBLIC_FIELDS = frozenset({"public_key", "public_keys"})
# `key` is a word of configuration too, and a session may be an object, but never as bytes
_BYTES_FIELD = re.compile(r"^(?:keys?|session(?:_number)?)$", re.IGNORECASE)
# Repetitions are bounded: these search texts that others wrote, and must stay linear.
_IN_TEXT = (
    (re.compile(r"-----BEGIN [^-]{1,64}-----.*?(?:-----END [^-]{1,64}-----|\Z)", re.DOTALL), "[PEM removed]"),
    (re.compile(r"eyJ[\w-]{4,512}(?:\.[\w-]*){1,4}"), "[token removed]"),
    (re.compile(r"(?i)\b(bearer\s+)\S+"), r"\1[removed]"),
    (
        re.compile(
            r"(?i)\b((?:[\w-]{0,64}[_-])?(?:token|secret|password|passphrase)\s{0,8}[=:]\s{0,8})(?!None\b|null\b)[^\s,;)}\]]+"
        ),
        r"\1[removed]",
    ),
)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """structlog processor: put it last before the renderer, after exceptions have become text."""
    for field in list(event):
        event[field] = _field(field, event[field], 0)
    return event


def redacted(value: Any) -> Any:
    """The same value without secrets; structs and dataclasses become plain mappings."""
    return _value(value, 0)


def _field(name: object, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(name)
    if text.lower() not in _KNOWN_PUBLIC_FIELDS and _SECRET_FIELD.search(text):
        return REMOVED
    if _BYTES_FIELD.match(text) and isinstance(value, bytes | bytearray | memoryview):
        return REMOVED
    return _value(value, depth)


def _value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value).decode("latin-1")
        return value if _text(text) == text else REMOVED
    if depth >= _MAX_DEPTH:
        return _text(repr(value))
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {_value(name, depth + 1): _field(name, item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(item, depth + 1) for item in value]
    text = repr(value)
    return value if _text(text) == text else _text(text)


def _text(text: str) -> str:
    for pattern, substitute in _IN_TEXT:
        text = pattern.sub(substitute, text)
    return text
