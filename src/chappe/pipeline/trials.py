"""A job over samples that are at hand: for benchmarks and for trying parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from chappe.pipeline.job import configured
from chappe.pipeline.jobs.forecast import Forecast
from chappe.pipeline.periods import DAY_NS
from chappe.pipeline.spark import session

NOW_NS = 20_500 * DAY_NS  # any midnight
_COLUMNS = ("node", "link", "created_ns", "latency_ms")


def forecast_errors(
    samples: Mapping[str, NDArray[np.float64]], sample_s: int, **settings: int
) -> dict[str, dict[int, tuple[float, float]]]:
    """By link and by intervals ahead the mean errors of forecasts and of the last value, as the job says.

    samples: latencies of a link, the last of them just now.
    """
    parts = [
        pa.table([
            pa.repeat("here", len(values)), pa.repeat(link, len(values)),
            pa.array(NOW_NS + (np.arange(len(values)) - len(values)) * (sample_s * 1_000_000_000)),
            pa.array(values, from_pandas=True),
        ], names=_COLUMNS)
        for link, values in samples.items()
    ]  # fmt: skip
    job = configured(Forecast, settings)
    running = SparkSession.getActiveSession()
    with tempfile.TemporaryDirectory(prefix="chappe-trial-") as folder:
        spark = running or session(settings={"spark.driver.memory": "1g", "spark.local.dir": folder})
        try:
            made = job.run({"measurements": spark.createDataFrame(pa.concat_tables(parts))}, NOW_NS)
            rows = made["forecast_errors"].collect()
        finally:
            if running is None:
                spark.stop()
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["link"], {})[row["step"]] = (row["error_ms"], row["naive_ms"])
    return found
