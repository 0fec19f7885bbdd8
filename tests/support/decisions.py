"""What an engine does with one status record: fed as a frame, seen by what leaves and what is counted."""

from __future__ import annotations

from chappe.engine._engine import Engine
from chappe.wire.frames import Kind, encode_frame

Ports = list[tuple[int, int]]  # (port, class)

_VERDICTS = {
    "drop_unknown": "UNKNOWN",
    "drop_not_in_mode": "NOT_IN_MODE",
    "drop_not_permitted": "NOT_PERMITTED",
    "drop_duplicate": "DUPLICATE",
    "drop_stale": "STALE",
    "drop_future": "FUTURE",
}
_MARKERS = [encode_frame(Kind.CONTROL, bytes([priority])) for priority in range(4)]


def engine_with(ports: int, layout: str = "sparse", *, edge: bool = True) -> Engine:
    """An engine with links 0 to `ports` - 1."""
    engine = Engine(layout=layout, edge=edge, seed=0)  # type: ignore[arg-type]
    assert [engine.open_port(peer=True) for _ in range(ports)] == list(range(ports))
    return engine


def decide(engine: Engine, port: int, record: bytes, wall_ns: int) -> tuple[str, Ports, Ports]:
    """Verdict, other ports that get a record that comes by this one, and those whose filter says no, with classes."""
    ports = [other for other in engine.open_ports() if other != port]
    before = engine.port_counters(port)
    filtered_before = {other: engine.port_counters(other)["filtered"] for other in ports}
    engine.clock(engine.mono_ns, wall_ns)
    engine.feed(port, encode_frame(Kind.STATUS, record))
    after = engine.port_counters(port)
    dropped = [verdict for name, verdict in _VERDICTS.items() if after[name] != before[name]]
    passed = [(other, _class_of(engine, other, record)) for other in ports if engine.pending(other)]
    filtered = [other for other in ports if engine.port_counters(other)["filtered"] != filtered_before[other]]
    if dropped:
        assert (len(dropped), passed, filtered) == (1, [], [])
        return dropped[0], [], []
    described = engine.status.describe(int.from_bytes(record[8:12], "big"))
    slot = engine.status.slot
    classes = {other: terms["class"] for other, terms in described["modes"].get(slot, {}).items()}
    return (
        "FLOODED" if slot in described["flooding"] else "FORWARD",
        passed,
        [(other, classes[other]) for other in filtered],
    )


def _class_of(engine: Engine, port: int, record: bytes) -> int:
    """In which class a record leaves: a more urgent class leaves first, and within one what was queued first."""
    for priority, marker in enumerate(_MARKERS):
        assert engine.send(port, marker, priority)
    written = b""
    while piece := bytes(engine.peek(port)):
        written += piece
        engine.consumed(port, len(piece))
    place = written.index(record)
    assert written.count(record) == 1
    return sum(written.index(marker) < place for marker in _MARKERS)
