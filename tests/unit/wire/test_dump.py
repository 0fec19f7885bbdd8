"""What `chappe dump` shows of a stream."""

from __future__ import annotations

import json

import pytest

from chappe.wire.control import Hello
from chappe.wire.dump import dump
from chappe.wire.events import Event, Topic, TopicName
from chappe.wire.frames import PREAMBLE, Frame, Kind
from chappe.wire.payloads import Probe, Status, encode_payload
from chappe.wire.status import record

STREAM = PREAMBLE + b"".join(
    encode_payload(payload).encode()
    for payload in (
        Hello(role="client", name="probe", session=bytes(16), token="very-secret"),
        Topic(7, TopicName("plant/a")),
        Event(7, 1, b"\x01\x02", properties={"unit": "kV"}),
        Status((record(1_000, 5, 1.5), record(2_000, 6, float("nan")))),
        Probe(0, 99),
    )
)


@pytest.mark.parametrize("step", [1, 3, 7, len(STREAM)])
def test_every_frame_is_shown_once_however_the_stream_is_cut(step: int) -> None:
    lines = list(dump(STREAM[place : place + step] for place in range(0, len(STREAM), step)))
    assert [line.kind for line in lines] == ["preamble", "CONTROL", "TOPIC", "EVENT", "STATUS", "PROBE"]
    offsets = [line.offset for line in lines]
    assert offsets[1] == 8
    assert offsets[-1] == len(STREAM) - 20
    assert offsets == sorted(offsets)


def test_lines_and_objects_say_the_same() -> None:
    lines = list(dump([STREAM]))
    topic, event, status = (json.loads(line.json()) for line in lines[2:5])
    assert topic["topic"] == {"name": "plant/a", "kind": "s", "group": ""}
    assert event["body"] == "0102"
    assert event["properties"] == {"unit": "kV"}
    assert [entry["variable"] for entry in status["records"]] == [5, 6]
    assert status["records"][0]["float"] == 1.5
    assert status["records"][1]["float"] == "nan"
    assert "plant/a" in lines[2].text()
    assert "token=0" in lines[5].text()


def test_secrets_are_not_shown() -> None:
    shown = "".join(line.text() + line.json() for line in dump([STREAM]))
    assert "probe" in shown
    assert "very-secret" not in shown


def test_a_stream_without_preamble_is_decoded_too() -> None:
    assert next(dump([STREAM[8:]])).kind == "CONTROL"


def test_a_bad_payload_is_shown_and_the_rest_goes_on() -> None:
    stream = Frame(Kind.LOSS, b"\x01").encode() + encode_payload(Probe(1, 2)).encode()
    lines = list(dump([stream]))
    assert "LOSS: status records needs 8 bytes" in lines[0].text()
    assert lines[1].kind == "PROBE"


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\xff\x00\x00\x00", "unknown kind of frame 0xff"),
        (b"\x01\xff\xff\xff", "above the limit"),
        (b"CHAPPE\x09\x00" + STREAM[8:], "version 9.0"),
        (STREAM[:-1], "ends inside a frame"),
        (PREAMBLE[:3], "ends inside a frame"),
    ],
)
def test_the_last_line_says_why_decoding_ended(stream: bytes, reason: str) -> None:
    last = list(dump([stream]))[-1]
    assert last.kind == "error"
    assert reason in last.fields["reason"]
