"""Messages and values as a terminal and a script can take them: nothing in them may steer the terminal."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

from chappe.wire.addresses import Address, redacted

if TYPE_CHECKING:
    from chappe.client._inbox import Message
    from chappe.client._status import StatusEvent
    from chappe.client.topics import Long


def printable(body: bytes) -> str:
    """The text of a body on one line; control characters and other bytes are escaped."""
    text = body.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def body_fields(body: bytes) -> dict[str, str]:
    """A body in JSON: `body` if it is text, `body_base64` if not."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _topic_text(topic: Long | Address) -> int | str:
    return redacted(topic.text) if isinstance(topic, Address) else topic.value


def message_json(message: Message) -> str:
    """An event as one JSON object."""
    row: dict[str, Any] = {
        "topic": message.topic if isinstance(message.topic, str | int) else _topic_text(message.topic),
        **body_fields(message.body),
        "priority": message.priority,
        "issuer": message.issuer.hex(),
        "sequence": message.sequence,
    }
    for name in ("group", "created", "expires", "content_type", "properties"):
        value = getattr(message, name)
        if value:
            row[name] = {key: _plain(each) for key, each in value.items()} if name == "properties" else value
    return json.dumps(row, ensure_ascii=False)


def event_json(event: StatusEvent) -> str:
    """A value as one JSON object."""
    return json.dumps(
        {
            "publisher": event.publisher,
            "variable": event.variable,
            "value": _plain(event.value),
            "created": event.created,
            "latency_ns": event.latency_ns,
        },
        ensure_ascii=False,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    # JSON has no NaN and no infinity: they are shown as text.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
