"""Rows on their way into the mesh: batch by batch, each under the same identity however often it is tried.

A batch is put on disk before it is sent. What was being sent when a process died is sent again by the next one: same
rows, same order, same (issuer, epoch, sequence), so that nodes, subscribers and the ingest of an archive drop what they
have already. Values of variables are told apart by their time.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from chappe.disk import sync
from chappe.errors import ChappeError, ConfigError
from chappe.pipeline.job import Publish

SCHEMAS = {
    Publish.EVENTS: pa.schema([pa.field("topic", pa.string()), pa.field("body", pa.string())]),
    Publish.VARIABLES: pa.schema([
        pa.field("name", pa.string()), pa.field("value", pa.float64()), pa.field("created_ns", pa.int64()),
    ]),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """What is known to have arrived."""

    session: str  # hexadecimal
    batch: int = -1
    sequence: int = 0  # of the last event


class Mesh(Protocol):
    """Who takes rows; returns when the node has them."""

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None: ...
    def variables(self, rows: list[tuple[str, float, int]]) -> None: ...


class Outbox:
    """The batches of one table or query; one process at a time."""

    def __init__(self, folder: Path, kind: Publish, mesh: Mesh) -> None:
        self._folder = folder
        self._kind = kind
        self._mesh = mesh
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def batch(self) -> int:
        """The newest batch that has arrived; -1 if there is none."""
        return self._state().batch

    def deliver(self, batch: int, rows: pa.Table) -> bool:
        """Send a batch unless it has arrived before; of one that was begun before, the rows that were begun with."""
        if batch <= self.batch:
            return False
        if not self._spool(batch).exists():
            self.prepare(batch, rows)
            return self.finish(batch, resent=False)
        return self.finish(batch)

    def prepare(self, batch: int, rows: pa.Table) -> None:
        """Put a batch on disk, to be sent by `finish`; whatever was there and not sent is forgotten."""
        for old in self._folder.glob("batch-*.arrow"):
            old.unlink()
        self._put(self._spool(batch), _bytes(ordered(rows, self._kind)))

    def finish(self, batch: int, resent: bool = True) -> bool:
        """Send a batch that was prepared and has not arrived yet; `resent`: it may have been sent before."""
        with self._alone():
            state, spool = self._state(), self._spool(batch)
            if batch <= state.batch or not spool.exists():
                return False
            count = self._send(state, resent, _read(spool))
            self._put(self._folder / "state.json", json.dumps(
                {"session": state.session, "batch": batch, "sequence": state.sequence + count}
            ).encode())  # fmt: skip
            spool.unlink()
            return True

    def _spool(self, batch: int) -> Path:
        return self._folder / f"batch-{batch:012d}.arrow"

    def _send(self, state: State, resent: bool, rows: pa.Table) -> int:
        columns = rows.to_pydict()
        if self._kind is Publish.EVENTS:
            events = [(topic, body.encode()) for topic, body in zip(columns["topic"], columns["body"], strict=True)]
            if events:
                self._mesh.events(bytes.fromhex(state.session), state.sequence, resent, events)
            return len(events)
        values = list(zip(columns["name"], columns["value"], columns["created_ns"], strict=True))
        if values:
            self._mesh.variables(values)
        return 0

    def _state(self) -> State:
        path = self._folder / "state.json"
        if not path.exists():
            self._put(path, json.dumps({"session": secrets.token_hex(16)}).encode())
        return State(**json.loads(path.read_bytes()))

    def _put(self, path: Path, content: bytes) -> None:
        """A file that is there whole or not at all."""
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(content)
        sync(hidden)
        hidden.rename(path)
        sync(self._folder)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self._folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ChappeError(
                    f"outbox {self._folder}: another process sends from it; give each query its own"
                ) from None
            yield


def kind_of(names: list[str]) -> Publish:
    """What rows with these columns are; ConfigError says what they must have."""
    for kind, schema in SCHEMAS.items():
        if set(schema.names) <= set(names):
            return kind
    wanted = " or ".join(", ".join(schema.names) for schema in SCHEMAS.values())
    raise ConfigError(f"format chappe: rows to publish have the columns {wanted}, not {', '.join(names)}")


def ordered(rows: pa.Table, kind: Publish) -> pa.Table:
    """The columns that are sent, without rows that lack one, in an order that depends on nothing but the rows."""
    schema = SCHEMAS[kind]
    table = rows.select(schema.names).cast(schema)
    complete = None
    for name in schema.names:
        known = pc.is_valid(table.column(name))
        complete = known if complete is None else pc.and_(complete, known)
    return table.filter(complete).sort_by([(name, "ascending") for name in _sorting(kind)])


def _sorting(kind: Publish) -> tuple[str, ...]:
    return ("topic", "body") if kind is Publish.EVENTS else ("created_ns", "name", "value")


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _read(path: Path) -> pa.Table:
    with pa.ipc.open_file(pa.py_buffer(path.read_bytes())) as reader:
        return reader.read_all()
