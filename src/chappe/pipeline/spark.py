"""Starting Spark: embedded by default, on a cluster or over Connect by one setting, one clear sentence without it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
EMBEDDED = "local[*]"

# A third less overhead for each micro-batch on a local disk than the default, measured.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.maxConcurrentOutputFileWriters": "4",  # rows that are written apart are not sorted before
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as the archive and the driver write them
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def missing(connect: bool = False) -> str:
    """Why there is no Spark here, in one sentence that says what to do; empty if there is.

    connect: it runs elsewhere, and Java with it.
    """
    if importlib.util.find_spec("pyspark") is None:
        return "the pipeline needs PySpark: pip install 'chappe[spark]'"
    if connect:
        known = importlib.util.find_spec("grpc") is not None
        return "" if known else "Spark Connect needs gRPC: pip install 'pyspark[connect]'"
    found = _java_major()
    if found is None:
        return f"the pipeline needs Java {JAVA} or newer: sudo apt install openjdk-{JAVA}-jre-headless"
    if found < JAVA:
        return f"the pipeline needs Java {JAVA} or newer, found {found}: sudo apt install openjdk-{JAVA}-jre-headless"
    return ""


def session(master: str = "", connect: str = "", settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process; ConfigError if Spark cannot run here.

    Only one of `master` (spark://host:7077, yarn, local[4]) and `connect` (sc://host:15002) may be given. Machines of a
    cluster get this package from here; they need Python of the same version with pyarrow, NumPy and pandas.
    """
    if master and connect:
        raise ConfigError(f"Spark: give a master ({master}) or a Connect URL ({connect}), not both")
    if reason := missing(bool(connect)):
        raise ConfigError(reason)
    from pyspark.sql import SparkSession  # here, because everything else must work without Spark

    builder = SparkSession.Builder().appName("chappe")
    builder = builder.remote(connect) if connect else builder.master(master or EMBEDDED)
    for name, value in {**(_SETTINGS if connect else _started(master or EMBEDDED)), **(settings or {})}.items():
        builder = builder.config(name, value)
    if not connect and not (master or EMBEDDED).startswith("local"):
        builder = builder.config("spark.submit.pyFiles", str(packed()))
    spark = builder.getOrCreate()
    if connect:
        spark.addArtifacts(str(packed()), pyfile=True)
    register(spark)
    return spark


def _home() -> None:
    """Let the Python processes of an embedded Spark load PySpark from where it is installed.

    They would take it from a zip inside of it, where nothing is compiled: each of them began with a second of work for
    the processor, and Spark gives one up that has not begun after ten. So Spark's home is a folder of links to all but
    that zip.
    """
    if "SPARK_HOME" in os.environ:
        return
    import pyspark

    home = Path(pyspark.__file__).parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chappe"
    links = cache / f"spark-{pyspark.__version__}-{zlib.crc32(str(home).encode()):08x}"
    try:
        if not links.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=cache))
            for each in home.iterdir():
                if each.name != "python":
                    (fresh / each.name).symlink_to(each)
            with contextlib.suppress(FileExistsError):
                fresh.rename(links)
    except OSError:  # slower, and right
        return
    os.environ["SPARK_HOME"] = str(links)


def packed() -> Path:
    """This package in a file for the machines of a cluster: what is compiled stays here, no task needs it."""
    root = Path(__file__).parents[1]
    file = Path(tempfile.mkdtemp(prefix="chappe-")) / "chappe.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".toml", ".xsd", ".xsl"):
                archive.write(path, path.relative_to(root.parent))
    return file


def _started(master: str) -> dict[str, str]:
    """Settings of a driver that this process starts."""
    # the JVM hands these to its workers: the same Python, and the same package as here
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).parents[2])
    known = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join((root, *known))
    said = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        **_SETTINGS,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={said}",
    }
    if master.startswith("local"):  # nobody else talks to it
        _home()
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def register(spark: SparkSession) -> None:
    """Make `format("chappe")` known to a session that somebody else has started."""
    from chappe.pipeline.source import Source  # here, because everything else must work without Spark

    spark.dataSource.register(Source)


def _java_major() -> int | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except OSError:
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(version.group(1)) if version else None
