"""What a node's file may say about its mesh, and what it is told when that is wrong."""

from __future__ import annotations

import pytest

from chappe.core.mesh_settings import settings_of
from chappe.core.sections import Measure, Mesh
from chappe.errors import ConfigError
from chappe.runtime.config.reader import parse

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[mesh]\nunit = "east//hall"', "mesh.unit: '' cannot be the name of a unit"),
        ('[mesh]\nunit = "east/+"', "mesh.unit: '+' cannot be the name"),
        ('[mesh]\nprofile = "fast"', "mesh.profile: there is no profile 'fast' (profiles: bulk, default"),
        ('[mesh]\n[mesh.formula]\nmine = "__import__(1)"', "mesh.formula.mine:"),
        ('[[mesh.topic]]\npattern = "video/#"\nprofile = "fast"', "mesh.topic[0].profile: there is no profile"),
        ('[[mesh.topic]]\npattern = "a/#/b"\nprofile = "media"', "mesh.topic[0].pattern:"),
        ('[mesh]\npublications = ["a//b"]', "mesh.publications[0]:"),
        ('[mesh]\nregion = "east"', "mesh.region: this key does not exist"),
        ('[mesh.units]\n"a//b" = ["*"]', "mesh.units: '' cannot be the name of a unit"),
        (
            '[mesh]\nunit = "east"\n[mesh.units]\neast = ["n*"]\n[node]\nname = "m"',
            "mesh.units: 'm' has no place in unit",
        ),
        ("[measure]\ninterval_s = 0", "measure.interval_s:"),
        ('[measure]\nfactors = ["luck"]', "measure.factors[0]:"),
        ("[report]", "report: nothing is measured that could be reported; add [measure] or [mesh]"),
        (
            '[mesh]\n[[peer]]\nname = "b"\n[[topic_route]]\npattern = "#"\nto = ["b"]',
            "topic_route: in a mesh events find their ways by themselves",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, "node.toml")
    assert f"node.toml: {reason}" in str(error.value)


@pytest.mark.spec("MR-109", "MR-117")
def test_the_file_sets_what_members_are_told() -> None:
    config = parse(
        '[mesh]\nunit = "east/hall"\nperformance = false\nprofile = "mine"\nrefresh_s = 10\nthreshold = 0.2\n'
        '[mesh.formula]\nmine = "latency_ms + 20 * jitter"\n[[mesh.topic]]\npattern = "video/#"\nprofile = "media"\n'
        '[measure]\ninterval_s = 0.5\nfactors = ["latency"]\nbandwidth = true\n[report]\nrealm = "north"\n'
    )
    assert config.mesh is not None
    assert config.measure is not None
    settings = settings_of(config.mesh, config.measure)
    assert (settings.mesh, settings.bandwidth, settings.profile) == (True, True, "mine")
    assert settings.profiles == (("video/#", "media"),)
    assert (settings.map.performance, settings.map.threshold) == (False, 0.2)
    assert (settings.map.refresh_ns, settings.map.lifetime_ns) == (10 * SECOND, 30 * SECOND)
    assert settings.measure.base_ns == settings.map.interval_ns == SECOND // 2
    assert settings.factors == ("latency", "deviation")


def test_without_a_mesh_a_node_measures_and_nothing_else() -> None:
    settings = settings_of(None, Measure(on=False))
    assert (settings.mesh, settings.measures) == (False, False)
    assert settings_of(Mesh(), Measure()).measures
