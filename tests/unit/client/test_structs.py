"""User types: names, hashes, lengths, bytes there and back."""

from __future__ import annotations

import msgspec
import pytest

from chappe.client._core import ClientCore
from chappe.client._status import Watch
from chappe.client._variables import Variable
from chappe.client.structs import blocks_for, decoder_of, fingerprint, value_type
from chappe.errors import ChappeError
from chappe.wire.frames import encode_frame
from tests.support.clientpeer import Peer


class Phasor(msgspec.Struct):
    """A measurement with two parts."""

    magnitude: float
    angle: float
    quality: int = 0


class Deep(msgspec.Struct):
    left: Phasor
    tags: list[str]
    inner: Deep | None = None


def renamed(name: str, *fields: tuple[str, type]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, list(fields))


@pytest.mark.spec("GS-021")
def test_a_user_type_is_known_by_its_name_and_the_names_and_types_of_its_fields() -> None:
    plain = renamed("Phasor", ("magnitude", float), ("angle", float), ("quality", int))
    assert value_type(Phasor).name == f"struct:Phasor:{fingerprint(Phasor)}"
    assert fingerprint(Phasor) == fingerprint(plain), "defaults and docstrings are not part of the type"
    others = [
        renamed("Phasor", ("magnitude", float), ("angle", float), ("quality", float)),
        renamed("Phasor", ("magnitude", float), ("phase", float), ("quality", int)),
        renamed("Phasor", ("angle", float), ("magnitude", float), ("quality", int)),
    ]
    assert len({fingerprint(Phasor), *map(fingerprint, others)}) == 4
    assert fingerprint(Phasor) == "2606be03", "programs of today and of tomorrow must agree"
    assert fingerprint(Deep) != fingerprint(Phasor)


@pytest.mark.spec("GS-021")
def test_values_of_a_user_type_travel_in_option_blocks_and_come_back() -> None:
    core = ClientCore()
    peer = Peer(core)
    kind = value_type(Phasor)
    blocks = blocks_for(kind.name, 60, 0)
    variable = Variable(core, "p", "v", kind.name, (1, 10), 3, blocks, encoder=kind.encode)
    variable.granted(9)
    sent = Phasor(1.5, -0.25, 7)
    assert variable.publish(sent, created=5)
    with pytest.raises(TypeError, match="Phasor is expected, not dict"):
        variable.publish({"magnitude": 1})
    peer.read()
    watch = Watch("p", "v")
    watch.decoder = kind.decode
    watch.admit(9, kind.name, 1, 10, 1)
    untyped = Watch("p", "v")
    untyped.decoder = decoder_of(kind.name)
    untyped.admit(9, kind.name, 1, 10, 1)
    core.watches.add([watch, untyped])
    core.feed(encode_frame(peer.frames[-1].kind, peer.frames[-1].payload))
    assert watch.value == sent
    assert [event.value for event in watch.take_nowait()] == [sent]
    assert untyped.value == {"magnitude": 1.5, "angle": -0.25, "quality": 7}


@pytest.mark.spec("GS-021")
def test_lengths_are_checked_with_clear_errors() -> None:
    assert [blocks_for("bytes", length, 0) for length in (None, 8, 9, 32, 33)] == [0, 0, 1, 1, 2]
    assert blocks_for("struct:A:1", 6, 0) == 0, "two bytes say the length"
    assert blocks_for("bytes", 6128, 0) == 255
    with pytest.raises(ValueError, match=r"at most 6104 bytes .beside 1 derived values., not 6128"):
        blocks_for("bytes", 6128, 1)
    with pytest.raises(ValueError, match="for bytes and user types"):
        blocks_for("int", 8, 0)
    with pytest.raises(ValueError, match="1 byte or more"):
        blocks_for("bytes", 0, 0)
    core = ClientCore()
    Peer(core)
    kind = value_type(Phasor)
    small = Variable(core, "p", "v", kind.name, (1, 10), 3, 0, encoder=kind.encode)
    small.granted(9)
    with pytest.raises(ValueError, match=r"p/v takes 8: register it with a larger length"):
        small.publish(Phasor(1, 2))
    assert core.counters()["status_published"] == 0


def test_bytes_that_are_no_value_of_the_type_are_an_error_of_the_reader_only() -> None:
    decode = value_type(Phasor).decode
    assert decode is not None
    with pytest.raises(ChappeError, match="no Phasor"):
        decode(b"\0\x05hello")
    with pytest.raises(ChappeError, match="no Phasor"):
        decode(b"\xff\xff")


@pytest.mark.parametrize("kind", [str, dict, Phasor(1, 2), 7])
def test_other_types_are_refused(kind: object) -> None:
    with pytest.raises(TypeError, match=r"float, int, bool, bytes or a msgspec.Struct"):
        value_type(kind)  # type: ignore[arg-type]


def test_built_in_types_may_be_named_or_given() -> None:
    assert [value_type(kind).name for kind in (float, int, bool, bytes, "int")] == [
        "float",
        "int",
        "bool",
        "bytes",
        "int",
    ]
