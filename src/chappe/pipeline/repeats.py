"""Rows with the same identity: found by hash, compared exactly where a hash is not alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chappe.archive.schema import OFFSET, RECEIVED_NS
from chappe.pipeline.rules import SOURCE

KEYS: Mapping[str, tuple[str, ...]] = {
    "status": ("variable", "name", "created_ns"),
    "events": ("issuer", "epoch", "sequence"),
    "measurements": ("node", "link", "created_ns"),
    "counters": ("node", "name", "labels", "created_ns"),
    "broker": ("broker", "action", "subject", "created_ns"),
    "quality": ("client", "subject", "kind", "created_ns"),
}
ORDER = (RECEIVED_NS, SOURCE, OFFSET)  # of two that are the same the first by these stays

Hashes = NDArray[np.uint64]
_SEED, _NOTHING = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_ODD = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)
_MOST_BITS, _WORTH_MARKS = 23, 16  # marks fit into eight megabytes


def hashes(dataset: str, rows: pa.Table) -> Hashes:
    """One number of 64 bits for each identity: the same for the same identity in every file and process."""
    return hashed(rows, KEYS[dataset])


def hashed(rows: pa.Table, names: Sequence[str]) -> Hashes:
    """The same of some columns."""
    total = np.full(rows.num_rows, _SEED, np.uint64)
    for name in names:
        total ^= _numbers(rows.column(name))
        total *= _ODD
        total ^= total >> _SHIFT
    return total


def twice(ordered: Hashes) -> Hashes:
    """Those that stand more than once among sorted ones, each once."""
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def among(wanted: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """Which stand among sorted ones; their last bits rule most others out, without a search."""
    if not len(ordered):
        return np.zeros(len(wanted), bool)
    if len(wanted) < len(ordered) // _WORTH_MARKS:
        return _stands(wanted, ordered)
    bits = np.uint64((1 << min((8 * len(ordered)).bit_length(), _MOST_BITS)) - 1)
    marks = np.zeros(int(bits) + 1, bool)
    marks[ordered & bits] = True
    found = marks[wanted & bits]
    likely = np.flatnonzero(found)
    found[likely] = _stands(wanted[likely], ordered)
    return found


def _stands(wanted: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    return ordered[np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)] == wanted


def firsts(
    dataset: str, rows: pa.Table, beside: Sequence[pa.Table] = (), before: Sequence[pa.Table] = ()
) -> NDArray[np.int64]:
    """Places of the first to arrive of each identity, unless one of those `beside` came before, or any is `before`."""
    keys = list(KEYS[dataset])
    mine = _frame(rows, [*keys, *ORDER]).assign(place=np.arange(rows.num_rows))
    found = pd.concat([mine, *(_frame(each, [*keys, *ORDER]).assign(place=-1) for each in beside)])
    found = found.sort_values(list(ORDER), kind="stable").drop_duplicates(keys)
    found = found[found["place"] >= 0]
    if before:
        known = pd.MultiIndex.from_frame(pd.concat([_frame(each, keys) for each in before]))
        found = found[~pd.MultiIndex.from_frame(found[keys]).isin(known)]
    return np.sort(found["place"].to_numpy(np.int64))


def _frame(rows: pa.Table, names: list[str]) -> pd.DataFrame:
    chosen = rows.select(names)
    plain = [
        pa.field(each.name, each.type.value_type if pa.types.is_dictionary(each.type) else each.type)
        for each in chosen.schema
    ]
    return chosen.cast(pa.schema(plain)).to_pandas()


def _numbers(column: pa.ChunkedArray) -> Hashes:
    """A number for each value; texts are hashed once for each that is distinct."""
    if pa.types.is_integer(column.type):
        return pc.fill_null(column, 0).to_numpy().astype(np.int64, copy=False).view(np.uint64)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return np.concatenate([np.zeros(0, np.uint64), *map(_texts, column.chunks)])


def _texts(chunk: pa.DictionaryArray) -> Hashes:
    distinct: NDArray[Any] = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
    known = pd.util.hash_array(distinct, categorize=False)
    known[-1] = _NOTHING
    return known[pc.fill_null(chunk.indices, len(distinct) - 1).to_numpy()]
