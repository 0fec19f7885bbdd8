"""What is missing for Spark is told in one sentence, and nothing else changes."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.pipeline import spark


def java(folder: Path, version: str) -> None:
    """A `java` that says it is of a version."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("17.0.10", ""),
        ("21", ""),
        ("11.0.2", "the pipeline needs Java 17 or newer, found 11: sudo apt install openjdk-17-jre-headless"),
        ("1.8.0_392", "the pipeline needs Java 17 or newer, found 8: sudo apt install openjdk-17-jre-headless"),
    ],
)
def test_java_is_new_enough_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, reason: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert spark.missing() == reason


def test_without_java_or_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert spark.missing() == "the pipeline needs Java 17 or newer: sudo apt install openjdk-17-jre-headless"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert "Java 17 or newer:" in spark.missing()
    assert spark.missing(connect=True) == ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else object())
    assert spark.missing(connect=True) == "Spark Connect needs gRPC: pip install 'chappe[spark]'"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert spark.missing() == "the pipeline needs PySpark: pip install 'chappe[spark]'"
    with pytest.raises(ConfigError, match="needs PySpark"):
        spark.session()


def test_one_place_to_run_is_enough() -> None:
    with pytest.raises(ConfigError, match=r"give a master .* or a Connect URL .*, not both"):
        spark.session("local[1]", "sc://head:15002")


def test_what_is_sent_to_a_cluster_is_python_alone() -> None:
    with zipfile.ZipFile(spark.packed()) as packed:
        names = set(packed.namelist())
    assert {"chappe/__init__.py", "chappe/pipeline/source.py", "chappe/archive/reader.py"} <= names
    assert not any(name.endswith((".so", ".pyx", ".c")) for name in names)
