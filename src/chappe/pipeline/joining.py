"""Joining small batches of tables while streams add to them and others follow.

A batch may be joined with others once every stream that follows the table is beyond it: the checkpoints say how far
they are. Conservative where they do not say which table an offset belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def join(spark: SparkSession, tables: Tables, name: str, followers: Iterable[Path]) -> int:
    """Join what nobody will read by number again, part by part; how many parts were joined. The newest batch stays."""
    followers = list(followers)
    joined = 0
    for part in tables.parts(name):
        upto = min([tables.last_batch(name, part) - 1, *(reached(each, part) for each in followers)])
        joined += upto >= 0 and tables.compact(spark, name, upto, part)
    return joined


def reached(checkpoint: Path, part: str) -> int:
    """The batch of a part up to which a stream will read nothing again; -1 if it has finished none."""
    done = max((int(each.name) for each in (checkpoint / "commits").glob("[0-9]*") if each.name.isdigit()), default=-1)
    offsets = checkpoint / "offsets" / str(done)
    if done < 0 or not offsets.is_file():
        return -1
    found = [_of(line, part) for line in offsets.read_text(encoding="utf-8").splitlines()[2:]]
    return min((each for each in found if each is not None), default=1 << 62)


def _of(line: str, part: str) -> int | None:
    """What an offset says of a part; None if it is of another source. `""` stands in every offset of a table."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or "" not in told:
        return None
    if part:
        return int(told[part]) if part in told else None
    return int(told[""]) if set(told) == {""} else None
