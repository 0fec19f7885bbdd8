from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import LinkError, ProtocolError, RefusedError, TimeoutExpired, VersionError
from chappe.links.handshake import Acceptor, Agreed, Connector, Ended, Introduced, Output, Send, shared
from chappe.links.link import control_frame
from chappe.wire.control import CAPABILITIES, Done, Hello, Refused, Welcome, decode
from chappe.wire.frames import PREAMBLE, Kind, encode_frame


def hello(**changes: object) -> Hello:
    fields: dict[str, object] = {"role": "client", "name": "c", "session": bytes(16), "capabilities": CAPABILITIES}
    return Hello(**(fields | changes))  # type: ignore[arg-type]


def welcome(_: Hello | None = None) -> Welcome:
    return Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16, capabilities=CAPABILITIES)


def sent(outputs: list[Output]) -> bytes:
    return b"".join(output.data for output in outputs if isinstance(output, Send))


def refusal(outputs: list[Output]) -> Refused:
    message = decode(sent(outputs)[4:])
    assert isinstance(message, Refused)
    return message


def error(outputs: list[Output]) -> Exception:
    ended = outputs[-1]
    assert isinstance(ended, Ended)
    return ended.error


@given(st.lists(st.integers(1, 40)), st.binary(max_size=30))
def test_both_sides_agree_however_the_bytes_are_cut(cuts: list[int], rest: bytes) -> None:
    connector, acceptor = Connector(hello()), Acceptor(welcome)
    to_acceptor, to_connector = sent(connector.start()) + rest, sent(acceptor.start())
    done: list[Agreed] = []
    for cut in [*cuts, 10_000]:
        outputs = acceptor.receive(to_acceptor[:cut])
        to_acceptor = to_acceptor[cut:]
        to_connector += sent(outputs)
        done += [output for output in outputs if isinstance(output, Agreed)]
        if done:
            break
    assert done[0].rest + to_acceptor == rest
    assert done[0].hello.name == "c"
    outputs = [
        output for place in range(len(to_connector)) for output in connector.receive(to_connector[place : place + 1])
    ]
    (agreed,) = outputs
    assert isinstance(agreed, Agreed)
    assert agreed.welcome.capabilities == CAPABILITIES
    assert agreed.rest == b""


def test_bytes_after_the_handshake_are_handed_on() -> None:
    connector = Connector(hello())
    (agreed,) = connector.receive(PREAMBLE + control_frame(welcome()) + b"more")
    assert isinstance(agreed, Agreed)
    assert agreed.rest == b"more"


def test_the_acceptor_names_both_versions_to_a_peer_of_another_major() -> None:
    acceptor = Acceptor(welcome)
    assert sent(acceptor.start()) == PREAMBLE
    outputs = acceptor.receive(b"CHAPPE\x01\x02")
    answer = refusal(outputs)
    assert answer.code == "version"
    assert "1.2" in answer.reason
    assert "2.0" in answer.reason
    assert isinstance(error(outputs), VersionError)
    assert acceptor.receive(b"anything") == []


def test_the_connector_names_both_versions_of_a_node_of_another_major() -> None:
    failure = error(Connector(hello()).receive(b"CHAPPE\x00\x09"))
    assert isinstance(failure, VersionError)
    assert "0.9" in str(failure)
    assert "2.0" in str(failure)


def test_what_a_side_does_not_name_is_not_used() -> None:
    outputs = Acceptor(welcome).receive(PREAMBLE + control_frame(hello(capabilities=())))
    agreed = outputs[-1]
    assert isinstance(agreed, Agreed)
    assert agreed.welcome.capabilities == ()
    (agreed,) = Connector(hello(capabilities=())).receive(PREAMBLE + control_frame(welcome()))
    assert isinstance(agreed, Agreed)
    assert agreed.welcome.capabilities == ()


def test_a_later_peer_falls_back_to_the_capabilities_that_both_know() -> None:
    later = hello(capabilities=("telepathy", *CAPABILITIES))
    agreed = Acceptor(welcome).receive(b"CHAPPE\x02\x09" + control_frame(later))[-1]
    assert isinstance(agreed, Agreed)
    assert agreed.welcome.capabilities == CAPABILITIES


def test_only_shared_capabilities_are_used() -> None:
    assert shared(("credit", "loss"), ("loss", "datagram")) == ("loss",)
    assert shared(("credit", "future"), ("future", "credit")) == ("credit", "future")


def test_a_client_is_told_who_publishes_its_events_and_a_node_is_not() -> None:
    for role, issuer in (("client", b""), ("client", b"short"), ("node", bytes(16))):
        answer = Welcome(name="n", session=b"n" * 16, issuer=issuer)
        failure = error(Connector(hello(role=role)).receive(PREAMBLE + control_frame(answer)))
        assert isinstance(failure, ProtocolError)
        assert "issuer in Welcome" in str(failure)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "not a Chappe peer"),
        (b"X", "not a Chappe peer"),
        (PREAMBLE + b"\x01\0\0\x18", "kind 0x01 came before"),
        (PREAMBLE + b"\xff", "kind 0xff came before"),
        (PREAMBLE + b"\x05\xff\xff\xff", "at most 65536 bytes"),
        (PREAMBLE + encode_frame(Kind.CONTROL, b"\xc1"), "not readable"),
        (PREAMBLE + encode_frame(Kind.CONTROL, b"\x81\xa1k\xa3Nix"), "unknown control message 'Nix'"),
        (PREAMBLE + control_frame(Done(id=1)), "expected Hello, got Done"),
        (PREAMBLE + control_frame(hello(role="king")), "role 'king'"),
        (PREAMBLE + control_frame(hello(session=b"short")), "session in Hello has 5 bytes"),
        (PREAMBLE + control_frame(hello(heartbeat_ns=0)), "heartbeat_ns"),
    ],
)
def test_the_acceptor_says_what_is_wrong_and_ends(data: bytes, reason: str) -> None:
    asked: list[Hello] = []
    acceptor = Acceptor(lambda got: asked.append(got) or welcome())  # type: ignore[func-returns-value]
    outputs = acceptor.receive(data)
    assert reason in refusal(outputs).reason
    assert isinstance(error(outputs), ProtocolError)
    assert asked == []
    assert acceptor.over


def test_a_half_hello_is_waited_for_until_the_time_is_up() -> None:
    acceptor = Acceptor(welcome)
    assert acceptor.receive((PREAMBLE + control_frame(hello()))[:-1]) == []
    outputs = acceptor.expired(10)
    assert "no Hello within 10 s" in refusal(outputs).reason
    assert isinstance(error(outputs), TimeoutExpired)
    assert acceptor.closed() == []


@pytest.mark.parametrize("machine", [Acceptor(welcome), Connector(hello())])
def test_the_end_of_the_stream_ends_a_half_handshake(machine: Acceptor | Connector) -> None:
    machine.receive(PREAMBLE[:5])
    outputs = machine.closed()
    assert sent(outputs) == b""
    assert isinstance(error(outputs), LinkError)


def test_a_refusal_by_the_node_reaches_the_connector_with_its_reason() -> None:
    acceptor = Acceptor(lambda _: Refused(reason="100 connections are open, the limit is 100", code="limit"))
    outputs = acceptor.receive(PREAMBLE + control_frame(hello()))
    assert isinstance(error(outputs), RefusedError)
    failure = error(Connector(hello()).receive(PREAMBLE + sent(outputs)))
    assert isinstance(failure, RefusedError)
    assert "the limit is 100" in str(failure)


@pytest.mark.parametrize(
    ("code", "kind"), [("version", VersionError), ("draining", LinkError), ("identity", RefusedError)]
)
def test_the_code_of_a_refusal_says_which_error_it_is(code: str, kind: type[Exception]) -> None:
    failure = error(Connector(hello()).receive(PREAMBLE + control_frame(Refused(reason="because", code=code))))
    assert type(failure) is kind


@pytest.mark.parametrize("message", [Done(id=1), Welcome(name="n", session=b"")])
def test_the_connector_accepts_nothing_but_a_whole_welcome(message: Done | Welcome) -> None:
    assert isinstance(error(Connector(hello()).receive(PREAMBLE + control_frame(message))), ProtocolError)


def test_no_answer_in_time_ends_the_connector() -> None:
    assert isinstance(error(Connector(hello()).expired(3)), TimeoutExpired)


@given(st.lists(st.one_of(st.binary(max_size=40), st.just(PREAMBLE), st.just(control_frame(hello()))), max_size=6))
def test_any_bytes_end_in_at_most_one_decision(pieces: list[bytes]) -> None:
    """Hostile bytes cause outputs, never exceptions, and nothing follows the decision."""
    for machine in (Acceptor(welcome), Connector(hello())):
        outputs = [output for piece in pieces for output in machine.receive(piece)]
        assert sum(isinstance(output, Agreed | Ended) for output in outputs) == machine.over
        assert not outputs or isinstance(outputs[-1], Agreed | Ended)


def test_a_side_that_is_not_ready_answers_later() -> None:
    ready: list[bool] = []
    acceptor = Acceptor(welcome, lambda _: not ready)
    introduced = acceptor.receive(PREAMBLE + control_frame(hello()))
    assert [type(output) for output in introduced] == [Introduced]
    ready.append(True)
    assert [type(output) for output in acceptor.answer()] == [Send, Agreed]
    assert acceptor.answer() == []
