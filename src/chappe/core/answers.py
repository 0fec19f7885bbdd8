"""The answers to requests that are not carried out."""

from __future__ import annotations

from chappe.machine import Send
from chappe.wire.control import Command, Failed, Request, Watch


def failed(port: int, request: Request | Command, code: str, reason: str) -> Send:
    """A request that is not carried out."""
    return Send(port, Failed(id=request.id, code=code, reason=reason))


def unknown(port: int, request: Watch) -> Send:
    """Nobody publishes it."""
    return failed(port, request, "unknown", f"no variable {request.publisher}/{request.variable} is known here")
