"""The frames of `tests/vectors/wire.json`, in both directions: another implementation can check itself against them.

`python -m tests.unit.wire.test_vectors` prints the file anew; a difference is a change of the contract.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.hostile.siphash import siphash128
from chappe.errors import ProtocolError
from chappe.wire.control import MAJOR, MINOR, Hello, Refused, Subscribe, Welcome
from chappe.wire.dump import describe
from chappe.wire.events import Event, Issuer, Topic, TopicName
from chappe.wire.frames import PREAMBLE, FrameReader
from chappe.wire.parcels import AckFlag, Acknowledgement, CellParcel, ParcelFlag
from chappe.wire.payloads import (
    Credit,
    Denial,
    Echo,
    Loss,
    Parcel,
    ParcelCredit,
    Payload,
    Probe,
    Status,
    decode_payload,
    encode_payload,
)
from chappe.wire.routes import RouteDefinition, Train, Trained
from chappe.wire.status import record

FILE = Path(__file__).parents[2] / "vectors" / "wire.json"
CREATED = 1_700_000_000_033_333_333
SESSION = bytes(range(16))
ISSUER = bytes(range(32, 48))
KEY = bytes(range(16, 32))

FRAMES: dict[str, Payload] = {
    "status float": Status((record(CREATED, 0x0040_0001, 59.98),)),
    "status int": Status((record(CREATED, 0x0040_0002, -42),)),
    "status bool": Status((record(CREATED, 0x0040_0003, True),)),
    "status run of three": Status(tuple(record(CREATED + step, 7, step) for step in range(3))),
    "status with option blocks": Status((record(CREATED, 8, bytes(range(1, 51))), record(CREATED, 9, 1))),
    "event": Event(5, 1, b"hello"),
    "event empty": Event(5, 2),
    "event alert, durable, resent": Event(5, 3, b"!", issuer=0x010203, priority=0, durable=True, resent=True),
    "event with extension": Event(
        5, 4, b"body", created=CREATED, expires=CREATED + 1_000_000_000, reply=TopicName("reply/here"),
        correlation=77, content_type="text/plain",
        properties={"unit": "kV", "count": -3, "ratio": 0.5, "valid": True, "raw": b"\xff"},
    ),
    "event with an unknown tag": Event(5, 5, b"body", unknown=((200, b"later"),)),
    "topic": Topic(5, TopicName("plant/a/voltage")),
    "topic with group": Topic(6, TopicName("jobs/new", group="workers")),
    "topic integer": Topic(7, TopicName(-5, "i")),
    "topic long": Topic(8, TopicName(1 << 40, "l")),
    "issuer": Issuer(0x010203, 2, ISSUER),
    "topic of a node": Topic(9, TopicName("east/hall/n7", "n")),
    "topic of an inbox": Topic(10, TopicName(f"east/hall/n7@{SESSION.hex()}", "n")),
    "topic of confirmations": Topic(11, TopicName(f"n7@confirm:{SESSION.hex()}", "n")),
    "event with a reply to an inbox": Event(
        5, 6, b"?", reply=TopicName(f"n7@{SESSION.hex()}", "n"), correlation=(1 << 64) - 2
    ),
    "event with its publisher's node": Event(5, 7, b"!", durable=True, created=CREATED, origin="east/hall/n7"),
    "route of an inbox": RouteDefinition(12, TopicName(f"n7@{SESSION.hex()}", "n"), b"\x90"),
    "route": RouteDefinition(9, TopicName("plant/a/voltage"), bytes.fromhex("9301a16e90")),
    "route of an integer topic": RouteDefinition(10, TopicName(-5, "i"), b"\x90"),
    "parcel, reserved": Parcel(b"left to cells"),
    "parcel without hops": Parcel(CellParcel(1, 0, "fr.paris.louvre", "de.berlin", b"body").encode()),
    "parcel with a hop list": Parcel(
        CellParcel(
            (1 << 64) - 1, 7, "fr.paris.louvre", "de.berlin", b"\0\1", ParcelFlag.FIRST | ParcelFlag.LAST, 5, 1,
            (bytes(range(8)), bytes(range(8, 16)), b"\xff" * 8),
        ).encode()
    ),
    "parcel that acknowledges": Parcel(CellParcel(9, 3, "de.berlin", "fr.paris", flags=ParcelFlag.ACK).encode()),
    "parcel that acknowledges with ranges": Parcel(
        CellParcel(
            9, 4, "de.berlin", "fr.paris", Acknowledgement(7, 1 << 23, 12, CREATED, ((9, 10), (12, 14))).encode(),
            ParcelFlag.ACK,
        ).encode()
    ),
    "parcel that says that there is no route": Parcel(
        CellParcel(
            9, 0, "de.berlin", "fr.paris", Acknowledgement(0, 0, flags=AckFlag.UNREACHABLE, text="no route").encode(),
            ParcelFlag.ACK,
        ).encode()
    ),
    "parcel to a prefix": Parcel(CellParcel(9, 4, "fr.", "de.berlin", b"all", ParcelFlag.MULTICAST).encode()),
    "parcel that returns": Parcel(
        CellParcel(9, 5, "fr.paris", "de.berlin", b"back", ParcelFlag.RETURNED, 3, 0, (b"\1" * 8,)).encode()
    ),
    "probe": Probe(9, CREATED, b"\0" * 8),
    "heartbeat": Probe(0, CREATED),
    "echo": Echo(Probe(9, CREATED, b"\0" * 8)),
    "train, first piece": Train(9, 1024, 0, padding=236),
    "train, last piece": Train(9, 1024, 1000, padding=4),
    "trained": Trained(9, half_bytes=512, half_ns=1_000, first_ns=-5, last_ns=1_995),
    "loss": Loss(10, 20),
    "credit": Credit(1 << 20),
    "denial": Denial(3, 1),
    "parcel credit": ParcelCredit(9, 1 << 20),
    "hello": Hello(role="client", name="meter-1", session=SESSION, capabilities=("credit", "loss")),
    "welcome": Welcome(name="tower-1", session=SESSION, issuer=ISSUER, capabilities=("credit", "loss"), credit=65_536),
    "refused": Refused(reason="version 1.2 is not 2.0", code="version"),
    "subscribe": Subscribe(id=1, pattern="plant/+/voltage", group="workers"),
}  # fmt: skip

REFUSED = {
    "unknown kind": "06000000",
    "length above the default limit": "02100001",
    "status without records": "01000000",
    "status cut inside a record": "01000017" + "00" * 23,
    "status with a lying option count": "01000018" + "00" * 11 + "0101" + "00" * 11,
    "event cut inside its header": "0200000b" + "00" * 11,
    "event of priority 7": "0200000c" + "0000000107" + "00" * 7,
    "event with a reserved flag": "0200000c" + "0000000143" + "00" * 7,
    "event extension past the end": "0200000e" + "000000010b" + "00" * 7 + "0001",
    "topic with a wildcard": "12000009" + "000000017300" + b"a/+".hex(),
    "topic with an empty level": "1200000a" + "000000017300" + b"a//b".hex(),
    "topic of unknown type": "12000007" + "00000001710061",
    "issuer of 25 bits": "22000018" + "01000000" + "00" * 20,
    "route without a way": "3200000a" + "0000000173000000" + "6161",
    "route with a way past the end": "3200000a" + "0000000173000002" + "9061",
    "route with a group": "3200000a" + "0000000173010001" + "9061",
    "train piece past the end": "24000010" + "00" * 8 + "00000028" + "00000020",
    "train of one gigabyte": "24000010" + "00" * 8 + "40000000" + "00000000",
    "trained too short": "34000027" + "00" * 39,
    "parcel of version 1": "03000022" + "01" + "00" * 33,
    "probe too short": "0400000f" + "00" * 15,
    "denial too short": "3500000f" + "00" * 15,
    "parcel credit too short": "4500000f" + "00" * 15,
    "loss too long": "15000011" + "00" * 17,
    "control that is no map": "0500000101",
}


def build() -> dict[str, Any]:
    """The content of the file."""
    datagram = (3).to_bytes(4, "big") + (1).to_bytes(8, "big") + encode_payload(FRAMES["status float"]).encode()
    return {
        "version": f"{MAJOR}.{MINOR}",
        "preamble": PREAMBLE.hex(),
        "frames": [
            {
                "name": name,
                "kind": encode_payload(payload).kind.name,
                "frame": encode_payload(payload).encode().hex(),
                "fields": describe(payload),
            }
            for name, payload in FRAMES.items()
        ],
        "refused": [{"name": name, "frame": frame} for name, frame in REFUSED.items()],
        "datagram": {
            "key": KEY.hex(),
            "session": 3,
            "sequence": 1,
            "datagram": (datagram + siphash128(KEY, datagram)).hex(),
        },
    }


STORED = json.loads(FILE.read_text()) if FILE.exists() else {"frames": [], "refused": [], "datagram": {}}


def test_the_file_holds_what_the_codec_writes() -> None:
    assert json.loads(json.dumps(build())) == STORED


@pytest.mark.parametrize("vector", STORED["frames"], ids=lambda vector: vector["name"])
def test_stored_frames_decode_to_their_fields_and_back(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["frame"])
    frames = FrameReader().feed(raw)
    assert len(frames) == 1
    payload = decode_payload(frames[0])
    assert payload == FRAMES[vector["name"]]
    assert json.loads(json.dumps(describe(payload))) == vector["fields"]
    assert encode_payload(payload).encode() == raw


@pytest.mark.parametrize("vector", STORED["refused"], ids=lambda vector: vector["name"])
def test_stored_bad_frames_are_refused(vector: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        [decode_payload(frame) for frame in FrameReader().feed(bytes.fromhex(vector["frame"]))]


@pytest.mark.spec("MR-135")
def test_the_header_of_an_event_carries_identifier_issuer_priority_and_expiry() -> None:
    vectors = {vector["name"]: bytes.fromhex(vector["frame"]) for vector in STORED["frames"]}
    alert = decode_payload(FrameReader().feed(vectors["event alert, durable, resent"])[0])
    assert isinstance(alert, Event)
    assert (alert.issuer, alert.sequence, alert.priority) == (0x010203, 3, 0)
    extended = decode_payload(FrameReader().feed(vectors["event with extension"])[0])
    assert isinstance(extended, Event)
    assert extended.expires == CREATED + 1_000_000_000


def test_the_tag_of_a_datagram_is_siphash_of_everything_before_it() -> None:
    # The first vector of the reference implementation for 128 bits: key 00..0f, empty message.
    assert siphash128(bytes(range(16)), b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    stored = STORED["datagram"]
    raw = bytes.fromhex(stored["datagram"])
    assert siphash128(bytes.fromhex(stored["key"]), raw[:-16]) == raw[-16:]
    assert decode_payload(FrameReader().feed(raw[12:-16])[0]) == FRAMES["status float"]


if __name__ == "__main__":
    print(json.dumps(build(), indent=1, ensure_ascii=False))
