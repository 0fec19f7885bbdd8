"""Records in a flat XML file, written and read in sequence, queried by XPath; bounded by size (MR-090)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from chappe.aggregation import xml
from chappe.aggregation._xml_rows import text_of
from chappe.aggregation.xml import HEAD, TAIL, Found
from chappe.errors import StoreError
from chappe.measure.record import Record

ROW_END = b"</performancedata>\n"


class FlatFile:
    """A file that is whole XML at every moment but that of an append; when it is full the older half is kept aside.

    One process writes. `max_bytes` bounds the file; the one before it is `FILE.1`, so both need twice of it.
    """

    def __init__(self, path: str | Path, max_bytes: int = 32 << 20) -> None:
        self.path = Path(path)
        self.before = self.path.with_name(self.path.name + ".1")
        self._max_bytes = min(max_bytes, xml.MAX_BYTES)
        try:
            self._repair()
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from None

    def append(self, records: Iterable[Record]) -> None:
        """Add records at the end; they are on disk when it returns."""
        rows = "".join(map(text_of, records)).encode()
        try:
            if self.path.stat().st_size + len(rows) > self._max_bytes:
                os.replace(self.path, self.before)
                self.path.write_bytes(HEAD + TAIL)
            with self.path.open("r+b") as file:
                file.seek(-len(TAIL), os.SEEK_END)
                file.write(rows + TAIL)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from None

    def query(self, expression: str) -> list[Found]:
        """What an XPath finds, in the older file first."""
        compiled = xml.compiled(expression)
        files = [path for path in (self.before, self.path) if path.exists()]
        return [found for path in files for found in xml.query(xml.parse(path.read_bytes()), compiled)]

    def _repair(self) -> None:
        """Make the file if it is not there; cut off what a process that was killed has left half written."""
        if not self.path.exists():
            self.path.write_bytes(HEAD + TAIL)
            return
        text = self.path.read_bytes()
        if not text.startswith(HEAD):
            raise StoreError(f"{self.path}: is no file of measurements; give another path")
        if not text.endswith(TAIL):
            whole = max(text.rfind(ROW_END) + len(ROW_END), len(HEAD)) if ROW_END in text else len(HEAD)
            self.path.write_bytes(text[:whole] + TAIL)
