"""The file of an archive: what it means, and what is said about one that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chappe.archive.config import Archive, load, parse
from chappe.archive.schema import DATASETS, input_schema
from chappe.errors import ConfigError

LEAST = '[archive]\nname = "plant"\nfolder = "history"\nlog = "log"\n'


def test_a_file_says_where_what_and_how_long(tmp_path: Path) -> None:
    file = tmp_path / "archive.toml"
    file.write_text(
        '[archive]\nname = "plant"\nfolder = "s3://bucket/history"\nlog = "log"\ntopics = ["plant/#", "a/+/b"]\n'
        "counters = false\nage_s = 5\n[[archive.variables]]\nname = 'pmu*/*'\ninterval_s = 0.1\n"
        "[archive.retention_days]\nstatus = 30\n"
    )
    of = load(file).archive
    assert (of.folder, of.log) == ("s3://bucket/history", str(tmp_path / "log"))
    assert of.urls == ["tcp://127.0.0.1:7400"]
    assert of.feeds == ["measurements", "broker", "quality"]
    assert (of.variables[0].name, of.variables[0].interval_s) == ("pmu*/*", 0.1)
    assert of.limits.age_ns == 5_000_000_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nme = 1", "nme"),
        ('cert = "c"', "archive.cert, archive.key: belong together"),
        ('cert = "c"\nkey = "k"', "archive.ca: is needed"),
        ('topics = ["a/#/b"]', "'#' is the last level"),
        ('topics = ["a//b"]', "empty level"),
        ('topics = ["a/b+"]', "whole levels"),
        ("modes = [16]", "archive.modes"),
        ("[[archive.variables]]\nname = 'novariable'", "archive.variables"),
        ("[archive.retention_days]\nstates = 3", "no dataset 'states'; there are status"),
        ("waiting_bytes = 1", "archive.waiting_bytes"),
    ],
)
def test_what_is_wrong_is_named(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{LEAST}{line}\n", "file.toml")
    assert str(caught.value).startswith("file.toml: ")
    assert said in str(caught.value)


def test_the_log_is_on_a_local_disk_and_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"archive\.log: s3://x is no folder"):
        parse(LEAST.replace('"log"', '"s3://x"'))
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        load("nowhere.toml")


def test_the_reference_names_every_key_and_its_file_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/archive.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert parse(block).archive.retention_days == {"status": 30, "measurements": 365}
    keys = page.partition("## Keys")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", keys, re.MULTILINE)
    assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == set(Archive.__struct_fields__)
    columns = page.partition("| dataset | columns |")[2].partition("```")[0]
    for dataset in DATASETS:
        (line,) = re.findall(rf"^\| `{dataset}` \| (.*) \|$", columns, re.MULTILINE)
        said = re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", line))
        assert said == [name for name in input_schema(dataset).names if name != "received_ns"]
