"""The compiled parser and tag agree with the vectors and with the Python codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.hostile.siphash import siphash128 as oracle
from chappe.engine._engine import Engine
from chappe.errors import ProtocolError
from chappe.links._datagram import siphash128
from chappe.wire.events import Issuer, Topic, TopicName
from chappe.wire.payloads import encode_payload
from tests.unit.wire.test_vectors import SESSION, STORED

# What the engine hands on unread is refused by whoever reads it.
READ_LATER = {"parcel of version 1", "control that is no map"}
# What only a node sends, and only to clients: the client reads it, never the engine.
FOR_CLIENTS = {"topic with group", "loss", "credit", "denial", "parcel credit"}


def fed(frame: str) -> Engine:
    """An engine whose link to a peer brought the definitions that events need, and then this frame."""
    engine = Engine()
    port = engine.open_port(peer=True)
    for number in (1, 5):
        engine.feed(port, encode_payload(Topic(number, TopicName(f"t/{number}"))).encode())
    for number in (0, 0x010203):
        engine.feed(port, encode_payload(Issuer(number, 1, SESSION)).encode())
    engine.feed(port, bytes.fromhex(frame))
    return engine


@pytest.mark.parametrize("vector", STORED["frames"], ids=lambda vector: vector["name"])
def test_the_engine_reads_the_stored_frames(vector: dict[str, Any]) -> None:
    if vector["name"] in FOR_CLIENTS:
        with pytest.raises(ProtocolError, match="nodes"):
            fed(vector["frame"])
    else:
        assert fed(vector["frame"]).counters()["frames_in"] == 5


@pytest.mark.parametrize(
    "vector",
    [vector for vector in STORED["refused"] if vector["name"] not in READ_LATER],
    ids=lambda vector: vector["name"],
)
def test_the_engine_refuses_the_stored_bad_frames(vector: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        fed(vector["frame"])


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=200))
def test_the_compiled_tag_equals_the_obvious_one(key: bytes, message: bytes) -> None:
    assert siphash128(key, message) == oracle(key, message)
