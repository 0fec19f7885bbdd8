from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from chappe.aggregation.access import Access
from chappe.aggregation.aggregator import Aggregator
from chappe.aggregation.alerts import Alerts
from chappe.aggregation.config import load, parse
from chappe.errors import ConfigError
from chappe.security.config import Action, Rule
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook
from tests.support.records import LINK

DOCS = Path(__file__).parents[3] / "docs"
HEAD = '[aggregates]\nname = "a"\nrealm = "east"\nstore = "a.db"\n'
FOREIGN = '[[foreign]]\nkind = "prometheus"\nplace = "http://x/metrics"\n'
FILES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    if "[aggregates]" in block
]


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(HEAD + 'ca = "ca.pem"\nxml = "/var/flat.xml"\n')
    found = load(file).aggregates
    assert (found.store, found.ca, found.xml) == (str(tmp_path / "a.db"), str(tmp_path / "ca.pem"), "/var/flat.xml")
    assert parse(HEAD.replace("a.db", "postgresql://h/d"), base=tmp_path).aggregates.store == "postgresql://h/d"


@pytest.mark.spec("MR-079")
def test_links_with_a_weight_get_advice() -> None:
    text = HEAD + FOREIGN + (
        '[[foreign.metric]]\nname = "rtt"\nfield = "latency_ms"\n'
        '[[foreign.link]]\nnode = "n1"\nuri = "tcp://host:9000"\nweight = 0.3\n'
        '[[foreign.link]]\nnode = "n2"\nuri = "tcp://other:9000"\n'
    )  # fmt: skip
    assert parse(text).settings().advises == {LINK: ("n1", 0.3)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"f.toml: Object missing required field `aggregates`"),
        ('[aggregates]\nname = "a/b"\nrealm = "r"\nstore = "s"', r"f.toml: .*aggregates.name"),
        (HEAD + 'cert = "c"', "cert, aggregates.key: belong together"),
        (HEAD + 'cert = "c"\nkey = "k"', "aggregates.ca: is needed"),
        (HEAD + 'follow = [{realm = "east", group = "g"}]', "east is the own realm"),
        (HEAD + "keep_days = 0", "keep_days"),
        (HEAD + FOREIGN, "prometheus needs .*foreign.metric"),
        (HEAD + '[[foreign]]\nkind = "pscheduler"\nplace = "x"', "say which links"),
        (HEAD + '[[foreign]]\nkind = "nagios"\nplace = "x"', "Invalid enum value 'nagios'"),
        (HEAD + '[[alert]]\nname = "x"\nwhen = "loss >"', "f.toml: condition 'loss >': it ends where a number"),
        (HEAD + '[[view]]\ngroup = "g"\n[[view]]\ngroup = "g"', "there are two views of that group"),
        (HEAD + '[[view]]\ngroup = "g"\nmetrics = ["speed"]', "Invalid enum value 'speed'"),
        (HEAD + "[[order]]\naction = 'explode'", "Invalid enum value 'explode'"),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(text, "f.toml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize("text", FILES)
def test_an_aggregator_would_read_the_files_in_the_documentation(text: str) -> None:
    assert parse(text).aggregates.realm


@pytest.mark.spec("MR-088")
def test_the_documented_rules_allow_what_an_aggregator_does_and_no_more() -> None:
    page = (DOCS / "how-to" / "aggregate.md").read_text()
    (block,) = [
        text for text in re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "[[rule]]" in text
    ]
    book = RuleBook.of(msgspec.toml.decode(block, type=dict[str, list[Rule]])["rule"])

    def may(name: str, action: Action, topic: str) -> bool:
        return book.allows(Identity(name=name, role="client", how="token"), action, topic).allowed

    text = HEAD.replace('name = "a"', 'name = "east-1"') + 'follow = [{realm = "west", group = "partners"}]\n'
    of = Aggregator(parse(text).settings(), Access(), Alerts(()), lambda now_ns: now_ns)
    assert [topic for topic in of.topics if not may("east-1", "subscribe", topic)] == []
    assert may("east-1", "publish", "PBR/Snapshot/east/partners")
    assert may("partner-7", "subscribe", "PBR/Snapshot/east/partners")
    for topic in ("PBR/Snapshot/east/staff", "PBR/Snapshot/east/+", "PBR/Report/east/#", "PBR/Alert/east"):
        assert not may("partner-7", "subscribe", topic)
    assert not may("east-1", "publish", "PBR/Report/east/n1")
    assert not may("desk-1", "publish", "PBR/Control/east/n1")
