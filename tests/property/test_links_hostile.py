"""Whatever bytes come, readers of HTTP, WebSocket and blocks answer with a verdict and never with a surprise."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request

from chappe.errors import ProtocolError
from chappe.links.address import parse
from chappe.links.authentication import answer, challenges
from chappe.links.negotiation import Capabilities, read_page
from chappe.links.proxy import Proxy
from chappe.links.striping import BlockReader, Receiving
from chappe.links.tunnel import Again, Failed, Opened, Tunnel
from chappe.links.websocket import WebSocketCodec

pieces = st.lists(st.binary(max_size=200), max_size=8)
heads = st.sampled_from(
    [b"", b"HTTP/1.1 407 x\r\n", b"HTTP/1.1 200 ok\r\n", b"Proxy-Authenticate: Digest ", b"\r\n\r\n"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), heads), max_size=10))
def test_a_tunnel_is_open_or_failed_or_waits(data: list[bytes]) -> None:
    tunnel = Tunnel(Proxy("p", 1, "u", "secret"), parse("wss://h:443"), lambda: "n")
    tunnel.request()
    for piece in data:
        outcome = tunnel.receive(piece)
        assert outcome is None or isinstance(outcome, Opened | Again | Failed)
        if isinstance(outcome, Failed):
            assert "secret" not in str(outcome.error)
        if outcome is not None:
            break


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_challenges_are_read_or_passed_over(header: str) -> None:
    found = challenges(header)
    assert len(found) <= 16
    made = answer(found, "u", "p", "CONNECT", "h:1", lambda: "n")
    assert made is None or made[0] in ("Basic", "Digest")


def pair() -> tuple[WSConnection, WSConnection]:
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    server.receive_data(client.send(Request(host="h", target="/", subprotocols=["chappe.2"])))
    assert list(server.events())
    client.receive_data(server.send(AcceptConnection(subprotocol="chappe.2")))
    assert list(client.events())
    return client, server


@settings(max_examples=300, deadline=None)
@given(pieces, st.booleans())
def test_frames_of_strangers_end_in_an_error_or_in_bytes(data: list[bytes], from_client: bool) -> None:
    client, server = pair()
    codec = WebSocketCodec(server if from_client else client)
    for piece in data:
        decoded = codec.decode(piece)
        assert decoded.error is None or isinstance(decoded.error, ProtocolError)
        if decoded.error is not None or decoded.over:
            assert isinstance(codec.farewell(), bytes)
            break


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=10), st.integers(1, 50))
def test_what_one_codec_writes_the_other_reads_however_it_is_cut(messages: list[bytes], cut: int) -> None:
    client, server = pair()
    near, far = WebSocketCodec(client), WebSocketCodec(server)
    stream = b"".join(near.encode(message) for message in messages) + client.send(Ping(payload=b"x"))
    got, answers = b"", b""
    for place in range(0, len(stream), cut):
        decoded = far.decode(stream[place : place + cut])
        got += decoded.payload
        answers += decoded.answer
    assert got == b"".join(messages)
    assert near.decode(answers).error is None
    over = far.decode(near.farewell())
    assert over.over
    assert over.error is None


@settings(max_examples=300, deadline=None)
@given(pieces)
def test_blocks_of_strangers_are_refused_or_bounded(data: list[bytes]) -> None:
    reader, receiving = BlockReader(), Receiving()
    try:
        for piece in data:
            for block in reader.feed(piece):
                receiving.put(*block)
    except ProtocolError:
        return
    assert receiving.waiting <= sum(map(len, data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_a_page_is_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(read_page(body, "h"), Capabilities)


def test_a_message_in_many_pieces_is_given_on_as_it_comes() -> None:
    """Nothing is kept until a message is complete: a peer cannot make us keep a large one."""
    client, server = pair()
    codec = WebSocketCodec(server)
    frame = client.send(BytesMessage(data=bytes(100_000), message_finished=False))
    assert len(codec.decode(frame[:50_000]).payload) > 49_000
    assert codec.decode(frame[50_000:]).error is None
    assert codec.decode(client.send(CloseConnection(code=1000))).over
