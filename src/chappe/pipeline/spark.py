"""Starting Spark: embedded by default, on a cluster or over Connect by one setting, one clear sentence without it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
EMBEDDED = "local[*]"
CONNECT_PORT = 15002  # where a Connect server listens if nobody says otherwise
REACH_S = 10.0

# A third less overhead for each micro-batch on a local disk than the default, measured.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# The heap grows once a fifth of the time goes into collecting, not a thirteenth: scans of ten million rows leave the
# JVM at 900 MiB instead of 1,200, for about a twentieth more of the processor. An embedded Spark shares its machine.
_SMALL_HEAP = "-XX:GCTimeRatio=4"
_SETTINGS: Mapping[str, str] = {  # of a session, wherever it runs
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.maxConcurrentOutputFileWriters": "4",  # rows that are written apart are not sorted before
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as the archive and the driver write them
    "spark.sql.shuffle.partitions": "4",
}
_NO_MARKS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
_DRIVER: Mapping[str, str] = {  # of a driver when it starts: a Connect server has its own
    f"spark.hadoop.{_NO_MARKS}": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
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
        return "" if known else "Spark Connect needs gRPC: pip install 'chappe[spark]'"
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

    if connect:
        return _connected(connect, {**_SETTINGS, _NO_MARKS: "false", **(settings or {})})
    builder = SparkSession.Builder().appName("chappe").master(master or EMBEDDED)
    for name, value in {**_started(master or EMBEDDED), **(settings or {})}.items():
        builder = builder.config(name, value)
    if not (master or EMBEDDED).startswith("local"):
        builder = builder.config("spark.submit.pyFiles", str(packed()))
    spark = builder.getOrCreate()
    register(spark)
    return spark


def remote(spark: SparkSession) -> bool:
    """Whether a session is that of a Connect server: its driver, and what batches of streams do, run there."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _connected(url: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on a Connect server; ConfigError if there is none, or if it has a setting only when it starts."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = _reach(url)
    try:
        spark = SparkSession.Builder().remote(url).getOrCreate()
    except PySparkException as error:
        raise ConfigError(f"Spark Connect {place}: {str(error).splitlines()[0]}") from error
    for name, value in settings.items():
        try:
            spark.conf.set(name, value)
        except PySparkException:
            spark.stop()
            raise ConfigError(
                f"Spark Connect {place}: {name} is a setting of the server: give it to that when it starts"
            ) from None
    spark.addArtifacts(str(packed()), pyfile=True)
    register(spark)
    return spark


def _reach(url: str) -> str:
    """Host and port, without the token that an address may have; ConfigError if nothing listens there.

    The client of Spark would try for ten minutes without a word.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme != "sc" or not parts.hostname:
            raise ValueError
        port = parts.port or CONNECT_PORT
    except ValueError:
        shown = url.partition("/;")[0]
        raise ConfigError(f"Spark Connect {shown}: an address is like sc://host:{CONNECT_PORT}") from None
    try:
        socket.create_connection((parts.hostname, port), timeout=REACH_S).close()
    except OSError as error:
        raise ConfigError(f"Spark Connect {parts.hostname}:{port}: no server is there: {error}") from error
    return f"{parts.hostname}:{port}"


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
    options = f"-Dlog4j2.configurationFile={said}"
    settings = {**_SETTINGS, **_DRIVER}
    if master.startswith("local"):  # nobody else talks to it
        _home()
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        options += f" {_SMALL_HEAP}"
    return settings | {"spark.driver.extraJavaOptions": options}


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
