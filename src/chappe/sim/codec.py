"""Control messages and their bytes, each computed once a network: a flood carries the same bytes to a thousand."""

from __future__ import annotations

from chappe.wire import control
from chappe.wire.base import Message
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.mesh import InterestAdvert, LinkAdvert, decode_advert

KEPT = 20_000


class Codec:
    """What `chappe.wire.control` does, remembered. Messages are never changed by whoever gets them."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._messages: dict[bytes, Message] = {}
        self._adverts: dict[bytes, LinkAdvert | InterestAdvert] = {}
        self._frames: dict[int, tuple[Message, bytes]] = {}  # by identity; the message is held, so nobody else has it

    def decode(self, payload: bytes) -> Message:
        """The message in a CONTROL payload; ProtocolError if there is none."""
        message = self._messages.get(payload)
        if message is None:
            message = control.decode(payload)
            if len(self._messages) >= self._kept:
                self._messages.clear()
            self._messages[payload] = message
            self._keep(message, encode_frame(Kind.CONTROL, payload))
        return message

    def advert(self, body: bytes) -> LinkAdvert | InterestAdvert:
        """What a statement says; ProtocolError if it cannot be read."""
        advert = self._adverts.get(body)
        if advert is None:
            advert = decode_advert(body)
            if len(self._adverts) >= self._kept:
                self._adverts.clear()
            self._adverts[body] = advert
        return advert

    def encode(self, message: Message) -> bytes:
        """The frame of a message."""
        known = self._frames.get(id(message))
        if known is not None:
            return known[1]
        frame = encode_frame(Kind.CONTROL, control.encode(message))
        self._keep(message, frame)
        return frame

    def _keep(self, message: Message, frame: bytes) -> None:
        if len(self._frames) >= self._kept:
            self._frames.clear()
        self._frames[id(message)] = (message, frame)
