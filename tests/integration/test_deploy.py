"""From one file to the configuration of every process, and what is said about a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.cli._deployment import Deployment, read
from chappe.errors import ConfigError
from chappe.links.ports import free_ports
from tests.support.commands import chappe, read_until, started

TWO_CLOUDS = """
dev = true

[limits]
subscriptions = 5000

[latency_model]
router_us = 40

[[broker]]
name = "root"
listen = ["tcp://127.0.0.1:7500"]

[[broker]]
name = "north"
parent = "root"
listen = ["tcp://127.0.0.1:7501", "tcp://127.0.0.1:7502"]
store = "postgresql://localhost/north"

[[broker]]
name = "south"
parent = "root"
listen = ["tcp://127.0.0.1:7503"]
store = "state/south.db"

[[router]]
name = "n1"
cloud = "north"
listen = "tcp://127.0.0.1:7401"
process = "core"

[[router]]
name = "n2"
cloud = "north"
listen = "tcp://127.0.0.1:7402"
process = "core"

[[router]]
name = "s1"
cloud = "south"
listen = "tcp://127.0.0.1:7403"

[[channel]]
between = ["n1", "n2"]

[[channel]]
between = ["n2", "s1"]
data = "udp"
"""


def deployed(folder: Path, text: str = TWO_CLOUDS) -> Deployment:
    file = folder / "grid.toml"
    file.write_text(text)
    return read(file)


def test_archives_stand_beside_brokers_and_routers(tmp_path: Path) -> None:
    inside = '[archives.plant]\narchive = { url = "tcp://127.0.0.1:7403", folder = "history", log = "log" }\n'
    (plant,) = deployed(tmp_path, TWO_CLOUDS + inside).archives
    assert plant.name == plant.config.archive.name == "plant"
    assert (plant.config.archive.folder, plant.config.archive.log) == (str(tmp_path / "history"), str(tmp_path / "log"))
    with pytest.raises(ConfigError, match=r"archives\.n1: a node, broker or process has this name, too"):
        deployed(tmp_path, TWO_CLOUDS + inside.replace("archives.plant", "archives.n1"))


def test_every_process_follows_from_the_file(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    processes = {process.name: process.members for process in deployment.processes}
    assert [*processes] == ["root", "north-1", "north-2", "south", "core", "s1"]
    assert [member.node.name for member in processes["core"]] == ["n1", "n2"]
    n2, s1 = processes["core"][1], processes["s1"][0]
    assert n2.broker is not None
    assert (n2.broker.name, n2.broker.urls) == ("north", ("tcp://127.0.0.1:7501", "tcp://127.0.0.1:7502"))
    assert [listen.url for listen in s1.listen] == ["tcp://127.0.0.1:7403", "udp://127.0.0.1:7403"]
    assert s1.limits.subscriptions == 5000
    assert not s1.peer  # its channels come from its broker
    for name, role, store in (
        ("root", "root", str(tmp_path / "root.db")),
        ("north-1", "north", "postgresql://localhost/north"),
        ("north-2", "north", "postgresql://localhost/north"),
        ("south", "south", str(tmp_path / "state/south.db")),
    ):
        manages = processes[name][0].manages
        assert manages is not None
        assert (manages.role, manages.store) == (role, store)
        assert manages.topology == deployment.topology
        assert [*manages.topology.routers] == ["n1", "n2", "s1"]
        assert manages.topology.children("root") == ["north", "south"]
        assert manages.topology.latency_model.router_us == 40


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('parent = "root"\nlisten = ["tcp://127.0.0.1:7503"]', 'parent = "south"\nlisten = ["tcp://127.0.0.1:7503"]',
         "grid.toml: broker[2].parent: the parents form a loop (south -> south)"),
        ('between = ["n2", "s1"]', 'between = ["n2", "s9"]', "grid.toml: channel[1].between: there is no router 's9'"),
        ('data = "udp"', 'data = "smoke"', "grid.toml: channel[1].data: Invalid enum value 'smoke'"),
        ("router_us = 40", "router_us = -1", "grid.toml: latency_model.router_us: Expected `float` >= 0"),
        ('cloud = "south"\n', "", "grid.toml: router[2].cloud: this key is required"),
        ("[limits]", "[limits]\ncolour = 1", "grid.toml: limits.colour: this key does not exist"),
        ("[latency_model]", "[nodes]\na = 'a.toml'\n[latency_model]", "either [nodes], or [[broker]]"),
        ("dev = true", "dev = false\n[log]\nlevel = 'loud'", "grid.toml: log.level"),
        ("127.0.0.1:7403", "192.0.2.1:7403", "grid.toml: router[2]: listen[0].url: --dev has no authentication"),
        ("dev = true", "dev = true\n[tls]\nca = 'no.pem'\ncert = '{name}.pem'\nkey = '{name}.key'",
         "broker[1]: tls.cert: "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_explained_and_starts_nothing(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in TWO_CLOUDS
    with pytest.raises(ConfigError) as raised:
        deployed(tmp_path, TWO_CLOUDS.replace(old, new))
    assert why in str(raised.value)


def test_the_command_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(TWO_CLOUDS)
    assert chappe("up", "--check", file).stdout == f"{file}: ok, 3 brokers, 3 routers, 2 channels\n"
    file.write_text(TWO_CLOUDS.replace('between = ["n2", "s1"]', 'between = ["n1", "n1"]'))
    for command in (("up", file), ("up", "--check", file)):
        assert "it joins n1 with itself; name two routers" in chappe(*command, code=2).stderr
    assert "there is none" in chappe("up", _with(file, "[nodes]\n"), code=2).stderr
    assert "this key is required" in chappe("up", _with(file, "dev = true\n"), code=2).stderr
    assert "north-1" in chappe("up", _with(file, TWO_CLOUDS), "--only", "x", code=2).stderr


def _with(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


SECURE = """
[tls]
ca = "pki/ca.pem"
cert = "pki/{{name}}.pem"
key = "pki/{{name}}.key"

[[rule]]
action = ["register", "watch"]
pattern = "#"
roles = ["client"]

[[broker]]
name = "root"
listen = ["tls://127.0.0.1:{}"]

[[broker]]
name = "north"
parent = "root"
listen = ["tls://127.0.0.1:{}"]

[[router]]
name = "n1"
cloud = "north"
listen = "tls://127.0.0.1:{}"

[[router]]
name = "n2"
cloud = "north"
listen = "tls://127.0.0.1:{}"

[[channel]]
between = ["n1", "n2"]
security = 2
"""


@pytest.mark.timeout(180)
def test_a_deployment_with_certificates(tmp_path: Path) -> None:
    """Routers obey their leaf broker, and that the root, by what the file says; operators need a rule or a role."""
    pki, ports = tmp_path / "pki", free_ports(4)
    chappe("cert", "init", pki)
    for name in ("root", "north", "n1", "n2"):
        chappe("cert", "node", pki, name, "--san", "127.0.0.1")
    chappe("cert", "client", pki, "ada", "--role", "admin")
    chappe("cert", "client", pki, "bob")

    def identity(name: str) -> tuple[object, ...]:
        return "--ca", pki / "ca.pem", "--cert", pki / f"{name}.pem", "--key", pki / f"{name}.key"

    file = _with(tmp_path / "grid.toml", SECURE.format(*ports))
    with started("up", file, "--in-process") as up:
        assert up.stdout is not None
        read_until(up.stdout, "2 brokers, 2 routers, 1 channel serve")
        edges = [f"tls://127.0.0.1:{port}" for port in ports[2:]]
        with started("pub", "--variable", "m/f", *range(1, 500), "--rate", 10, "--url", edges[0], *identity("bob")):
            done = chappe("watch", "m/f", "--count", 2, "--wait", 20, "--url", edges[1], *identity("bob"))
            assert len(done.stdout.splitlines()) == 2
        assert "may not control" in chappe("mode", "set", 3, "-d", file, *identity("bob"), code=4).stderr
        chappe("mode", "set", 3, "-d", file, *identity("ada"))
        assert '"mode": 3' in chappe("mode", "show", "-d", file, "--json", "-b", "north", *identity("ada")).stdout
        up.terminate()
        assert up.wait(40) == 0
