"""What each kind of frame holds, as one typed object, and back to bytes."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.errors import ProtocolError
from chappe.wire import control
from chappe.wire.events import Event, Issuer, Topic
from chappe.wire.frames import Cursor, Frame, Kind, unsigned
from chappe.wire.routes import RouteDefinition, Train, Trained
from chappe.wire.status import Record, decode_status, encode_status

PROBE_PADDING_LIMIT = 1400 - 16  # a probe fits into one datagram
PARCEL_VERSION = 2  # see wire/parcels.py


@dataclass(frozen=True, slots=True)
class Status:
    """A run of records."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that the other engine answers with the same bytes; token 0 is a heartbeat."""

    token: int
    clock_ns: int
    padding: bytes = b""

    def encode(self) -> bytes:
        """The payload of a PROBE or ECHO frame."""
        if len(self.padding) > PROBE_PADDING_LIMIT:
            raise ProtocolError(f"a probe is padded with at most {PROBE_PADDING_LIMIT} bytes, not {len(self.padding)}")
        return unsigned(self.token, 8, "token") + unsigned(self.clock_ns, 8, "clock") + self.padding


@dataclass(frozen=True, slots=True)
class Echo:
    """The answer to a probe."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Loss:
    """What was dropped for this port since it opened."""

    status: int
    events: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Bytes of EVENT frames that the client may have sent on this connection, in total."""

    total_bytes: int


@dataclass(frozen=True, slots=True)
class Denial:
    """EVENT frames of this client that the node did not take since the port opened: by rules, for want of numbers."""

    by_rule: int
    for_room: int


@dataclass(frozen=True, slots=True)
class ParcelCredit:
    """Bytes of PARCEL frames of one flow that the client may have sent to this node, in total."""

    flow: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """A parcel of cells: what follows the version of its header is read by `wire.parcels` at cells alone."""

    content: bytes = b""

    def encode(self) -> bytes:
        """The payload of a PARCEL frame."""
        return bytes((PARCEL_VERSION,)) + self.content


Payload = (
    Status
    | Event
    | Topic
    | Issuer
    | RouteDefinition
    | Parcel
    | Probe
    | Echo
    | Train
    | Trained
    | Loss
    | Credit
    | Denial
    | ParcelCredit
    | control.Message
)


def decode_payload(frame: Frame) -> Payload:
    """What the frame holds; ProtocolError says what is wrong with it and where."""
    kind, payload = frame
    cursor = Cursor(payload, kind.name)
    match kind:
        case Kind.STATUS:
            return Status(tuple(decode_status(payload)))
        case Kind.EVENT:
            return Event.decode(payload)
        case Kind.TOPIC:
            return Topic.decode(payload)
        case Kind.ISSUER:
            return Issuer.decode(payload)
        case Kind.ROUTE:
            return RouteDefinition.decode(payload)
        case Kind.PARCEL:
            return _parcel(cursor)
        case Kind.PROBE:
            return _probe(cursor)
        case Kind.ECHO:
            return Echo(_probe(cursor))
        case Kind.TRAIN:
            return Train.decode(payload)
        case Kind.TRAINED:
            return Trained.decode(payload)
        case Kind.CONTROL:
            return control.decode(payload)
        case Kind.LOSS:
            loss = Loss(cursor.unsigned(8, "status records"), cursor.unsigned(8, "events"))
            cursor.finish()
            return loss
        case Kind.CREDIT:
            credit = Credit(cursor.unsigned(8, "total"))
            cursor.finish()
            return credit
        case Kind.DENIAL:
            denial = Denial(cursor.unsigned(8, "refused by rules"), cursor.unsigned(8, "without room"))
            cursor.finish()
            return denial
        case Kind.PARCEL_CREDIT:
            parcel_credit = ParcelCredit(cursor.unsigned(8, "flow"), cursor.unsigned(8, "total"))
            cursor.finish()
            return parcel_credit


def encode_payload(payload: Payload) -> Frame:
    """The frame that holds this."""
    match payload:
        case Status(records):
            return Frame(Kind.STATUS, encode_status(records))
        case Event():
            return Frame(Kind.EVENT, payload.encode())
        case Topic():
            return Frame(Kind.TOPIC, payload.encode())
        case Issuer():
            return Frame(Kind.ISSUER, payload.encode())
        case RouteDefinition():
            return Frame(Kind.ROUTE, payload.encode())
        case Train():
            return Frame(Kind.TRAIN, payload.encode())
        case Trained():
            return Frame(Kind.TRAINED, payload.encode())
        case Parcel():
            return Frame(Kind.PARCEL, payload.encode())
        case Probe():
            return Frame(Kind.PROBE, payload.encode())
        case Echo(probe):
            return Frame(Kind.ECHO, probe.encode())
        case Loss(status, events):
            return Frame(Kind.LOSS, unsigned(status, 8, "status records") + unsigned(events, 8, "events"))
        case Credit(total_bytes):
            return Frame(Kind.CREDIT, unsigned(total_bytes, 8, "total"))
        case Denial(by_rule, for_room):
            return Frame(Kind.DENIAL, unsigned(by_rule, 8, "refused by rules") + unsigned(for_room, 8, "without room"))
        case ParcelCredit(flow, total_bytes):
            return Frame(Kind.PARCEL_CREDIT, unsigned(flow, 8, "flow") + unsigned(total_bytes, 8, "total"))
        case control.Notice() | control.Request() | control.Command() | control.Answer():
            return Frame(Kind.CONTROL, control.encode(payload))


def _probe(cursor: Cursor) -> Probe:
    probe = Probe(cursor.unsigned(8, "token"), cursor.unsigned(8, "clock"), cursor.rest())
    if len(probe.padding) > PROBE_PADDING_LIMIT:
        raise ProtocolError(f"a probe is padded with at most {PROBE_PADDING_LIMIT} bytes, not {len(probe.padding)}")
    return probe


def _parcel(cursor: Cursor) -> Parcel:
    version = cursor.unsigned(1, "version")
    if version != PARCEL_VERSION:
        raise ProtocolError(f"PARCEL: header of version {version}, this side knows {PARCEL_VERSION}")
    return Parcel(cursor.rest())
