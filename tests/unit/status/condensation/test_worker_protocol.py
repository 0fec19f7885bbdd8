"""What router and worker say to each other: any cut of the stream gives the same messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.status.condensation import worker_protocol as words
from chappe.status.condensation.worker_protocol import (
    FunctionState,
    Messages,
    Report,
    Run,
    Start,
    Stop,
    blamed,
    decode_request,
    encode,
)
from chappe.wire.base import Variable
from chappe.wire.management import Function, Input

OUTPUT = Variable(9, "out", "result", "float", 1, 1000, 3, 0)
REQUESTS: list[words.ToWorker] = [
    Start("r1", "unix:///tmp/x/router", "token", "/tmp/x/blame", 1 << 20, 0.05, 0.25),
    Run(OUTPUT, Function(publisher="out", variable="result", inputs=(Input("p", "v"),), calculator="builtin:sum"),
        (Variable(1, "p", "v", "float", 1, 1000, 3, 0),)),
    Stop(9),
]  # fmt: skip


@given(st.lists(st.integers(1, 50), min_size=1))
def test_messages_arrive_whole_however_they_are_cut(cuts: list[int]) -> None:
    stream = b"".join(encode(each) for each in REQUESTS) * 3
    messages, at = Messages(), 0
    bodies: list[bytes] = []
    while at < len(stream):
        step = cuts[len(bodies) % len(cuts)]
        bodies += messages.feed(stream[at : at + step])
        at += step
    assert [decode_request(body) for body in bodies] == REQUESTS * 3


def test_a_report_comes_back_as_it_was() -> None:
    report = Report((FunctionState(9, "running", "", {"fired": 3}), FunctionState(10, "stopped", "too slow")))
    [body] = Messages().feed(encode(report))
    assert words.decode_report(body) == report


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the worker sent no report"):
        words.decode_report(b"\x01")
    with pytest.raises(ProtocolError, match="the router sent no valid request"):
        decode_request(encode(Report(()))[4:])
    with pytest.raises(ProtocolError, match="the most allowed"):
        Messages().feed(b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("content", "number"), [(bytes(8), 0), (bytes((0, 0, 0, 7)) + bytes(4), 7), (bytes(4) + bytes((0, 0, 1, 0)), 256)]
)
def test_the_calculation_under_way_is_blamed_before_an_import(content: bytes, number: int) -> None:
    assert blamed(content) == number
