"""Addresses of nodes and of inboxes at them: topics of kind `n`, routed by the map and not by interest.

`east/hall/n7` is a node, `n7` one without units. `NODE@0123…` (32 hex digits) is an inbox there: its id is 128 random
bits, and knowing it is the right to send to it, so nobody else sees it. `NODE@confirm:0123…` is where archives
confirm the durable events of an issuer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from chappe.errors import ProtocolError

KIND = "n"
TEXTS = ("s", KIND)  # kinds whose topics are text; the others are numbers
ADDRESS_LIMIT = 1024  # bytes of UTF-8
LEVELS_LIMIT = 64
ID_BYTES = 16
INBOX_PART = 64  # bytes that an address needs behind the node's own
CONFIRM = "confirm:"
HIDDEN = "…"

Purpose = Literal["node", "inbox", "confirm"]

_NODE = re.compile(r"[^/@+#\x00]+(?:/[^/@+#\x00]+)*")
_ID = re.compile(r"(confirm:)?[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """A topic that is the address of a node, or of an inbox at it: whoever knows that one may send there."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"an address is text, not {type(self.text).__name__}")

    def __repr__(self) -> str:
        """Without the id of an inbox, which belongs in no log."""
        return f"Address({redacted(self.text)!r})"


def check_address(text: str) -> None:
    """ProtocolError if this is no address; the text is redacted without the id of an inbox."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ProtocolError("an address is text in UTF-8") from None
    if not 1 <= size <= ADDRESS_LIMIT:
        raise ProtocolError(f"an address has 1 to {ADDRESS_LIMIT} bytes, not {size}")
    node, at, id = text.partition("@")
    if not _NODE.fullmatch(node) or node.count("/") >= LEVELS_LIMIT or (at and not _ID.fullmatch(id)):
        raise ProtocolError(f"{redacted(text)[:80]!r} is no address: NODE or UNIT/NODE, or one that an inbox was given")


def inbox_address(node: str, id: bytes) -> str:
    """The address of an inbox at a node."""
    return f"{node}@{id.hex()}"


def confirm_address(node: str, issuer: bytes) -> str:
    """Where archives confirm the durable events of an issuer whose client is at that node."""
    return f"{node}@{CONFIRM}{issuer.hex()}"


def neighbour_pattern(name: str) -> str:
    """What leads to everything at the node of that name, in the topic table of a neighbour; of none: to all others."""
    return f"{name}@"


def node_of(text: str) -> str:
    """The node that an address leads to."""
    return text.partition("@")[0]


def purpose(text: str) -> Purpose:
    """What a well-formed address is for."""
    _, at, id = text.partition("@")
    if not at:
        return "node"
    return "confirm" if id.startswith(CONFIRM) else "inbox"


def redacted(text: str) -> str:
    """An address for logs, listings and messages: without the id, which is nobody else's business."""
    node, at, _ = text.partition("@")
    return f"{node}@{HIDDEN}" if at else node
