"""The node's own port: its events take the same ways as those of clients, and it hears what it subscribed to."""

from __future__ import annotations

from collections.abc import Sequence

from chappe.engine._engine import Engine
from chappe.links._socket import Flusher, collect
from chappe.runtime.mesh.port import OwnPort
from chappe.wire.events import Event, Topic
from chappe.wire.frames import FrameReader, Kind


def test_what_the_node_publishes_reaches_subscribers_with_its_content_type() -> None:
    engine = Engine(authorize=lambda port, kind, topic: True)
    own = OwnPort(engine, Flusher(engine))
    client = engine.open_port(issuer=bytes(16), loss=False)
    engine.topics.subscribe(client, "PBR/#")
    own.publish("PBR/PerformanceData/east", b"{}", "application/json")
    own.publish("PBR/PerformanceData/east", b"[]")
    own.publish("else", b"nobody")
    frames = FrameReader().feed(collect(engine, client, 1 << 20))
    topics = {topic.number: topic.topic.name for topic in map(Topic.decode, _of(frames, Kind.TOPIC))}
    events = [Event.decode(payload) for payload in _of(frames, Kind.EVENT)]
    assert [(topics[event.topic], event.body) for event in events] == [
        ("PBR/PerformanceData/east", b"{}"),
        ("PBR/PerformanceData/east", b"[]"),
    ]
    assert events[0].content_type == "application/json"


def test_it_hears_what_it_subscribed_to_and_a_listener_that_fails_harms_nobody() -> None:
    engine = Engine(authorize=lambda port, kind, topic: True)
    flusher = Flusher(engine)
    own = OwnPort(engine, flusher)
    heard: list[tuple[str, bytes]] = []

    def fails(topic: str, body: bytes) -> None:
        raise RuntimeError("a listener's defect")

    own.subscribe("PBR/Control/+/a", fails)
    own.subscribe("PBR/Control/#", lambda topic, body: heard.append((topic, body)))
    own.publish("PBR/Control/north/a", b"1")
    own.publish("PBR/Report/north/a", b"2")
    flusher.flush()
    assert heard == [("PBR/Control/north/a", b"1")]
    own.close()
    own.publish("PBR/Control/north/a", b"3")
    flusher.flush()
    assert len(heard) == 1


def _of(frames: Sequence[tuple[Kind, bytes]], kind: Kind) -> list[bytes]:
    return [payload for found, payload in frames if found is kind]
