"""What the Spark process of `chappe bench pipeline` can be asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chappe.pipeline import plain
