"""Statements of the mesh for tests: made of an advertisement, and read again."""

from __future__ import annotations

from chappe.linkstate.database import Advert
from chappe.wire.base import Message
from chappe.wire.mesh import Statement, decode_advert, encode_advert


def stated(advert: Advert, signature: bytes = b"", age_ms: int = 0) -> Statement:
    """A statement that says this."""
    return Statement(body=encode_advert(advert), signature=signature, age_ms=age_ms)


def read(message: Message) -> Advert:
    """What a statement says."""
    assert isinstance(message, Statement)
    return decode_advert(message.body)
