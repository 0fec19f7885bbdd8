"""`chappe up`: several nodes with one command; `chappe node` with a file and credentials."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from chappe.links.ports import free_ports
from tests.support.chain import node_file
from tests.support.commands import chappe, read_until, rows, started

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"


def deployment(folder: Path) -> tuple[Path, list[int]]:
    """Two nodes with files of their own and one inside the file of the deployment, on free ports."""
    ports = free_ports(3)
    for place, name in enumerate("ab"):
        (folder / f"{name}.toml").write_text(node_file(place, ports))
    file = folder / "mesh.toml"
    file.write_text(
        'dev = true\n\n[nodes]\na = "a.toml"\nb = "b.toml"\n\n[nodes.c]\n'
        f'listen = [{{ url = "tcp://127.0.0.1:{ports[2]}" }}]\npeer = [{{ name = "b" }}]\n'
    )
    return file, ports


def node_processes(up: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The nodes that a `chappe up` started, by name."""
    return {child.cmdline()[-1]: child for child in psutil.Process(up.pid).children()}


def events_reach_the_other_end(ports: list[int]) -> None:
    with started("sub", "alarms/#", "--count", 1, "--url", f"tcp://127.0.0.1:{ports[2]}") as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        read_until(subscriber.stderr, "subscribed")
        chappe("pub", "alarms/x", "hello", "--url", f"tcp://127.0.0.1:{ports[0]}")
        assert subscriber.stdout.read() == "alarms/x  hello\n"


@pytest.mark.parametrize("options", [(), ("--in-process",)])
def test_a_deployment_serves_until_it_is_told_to_end(tmp_path: Path, options: tuple[str, ...]) -> None:
    file, ports = deployment(tmp_path)
    with started("up", file, *options) as up:
        assert up.stdout is not None
        lines = read_until(up.stdout, "3 nodes serve")
        assert {line for line in lines if "listening" in line} == {
            f"{name} | listening tcp://127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)
        }
        assert len(node_processes(up)) == (0 if options else 3)
        events_reach_the_other_end(ports)
        links = rows(chappe("ls", "links", "--json", "--url", f"tcp://127.0.0.1:{ports[1]}").stdout)
        assert {link["name"]: link["status"] for link in links} == {"a": "connected", "c": "connected"}
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0


def with_archives(folder: Path) -> tuple[Path, list[int]]:
    """The same, with an archive of a file of its own and one inside the file of the deployment."""
    file, ports = deployment(folder)
    (folder / "plant.toml").write_text(
        f'[archive]\nname = "plant"\nurl = "tcp://127.0.0.1:{ports[2]}"\nfolder = "history"\nlog = "log"\n'
        'topics = ["alarms/#"]\n'
    )
    inside = f'{{ url = "tcp://127.0.0.1:{ports[0]}", folder = "history", log = "second", topics = ["alarms/#"] }}'
    archives = f'[archives]\nplant = "plant.toml"\n[archives.second]\narchive = {inside}\n'
    file.write_text(f"{file.read_text()}\n{archives}")
    return file, ports


def test_archives_of_a_deployment_run_beside_its_nodes_and_end_before_them(tmp_path: Path) -> None:
    file, ports = with_archives(tmp_path)
    assert "3 nodes, 2 archives in 5 processes" in chappe("deploy", "check", file).stdout
    with started("up", file) as up:
        assert up.stdout is not None
        lines = read_until(up.stdout, "3 nodes, 2 archives serve")
        assert {"plant  | serving", "second | serving"} <= {line.rstrip() for line in lines}
        assert set(node_processes(up)) == {"a", "b", "c", "plant", "second"}
        for port in (ports[0], ports[2]):  # each has an archive that confirms
            chappe("pub", "alarms/x", "hello", "--durable", "--url", f"tcp://127.0.0.1:{port}")
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    listed = rows(chappe("archive", "ls", tmp_path / "history", "--json").stdout)
    assert {row["source"] for row in listed if row["dataset"] == "events"} == {"plant", "second"}


def test_an_archive_that_dies_is_named(tmp_path: Path) -> None:
    file, _ = with_archives(tmp_path)
    with started("up", file) as up:
        assert up.stdout is not None
        assert up.stderr is not None
        read_until(up.stdout, "3 nodes, 2 archives serve")
        node_processes(up)["plant"].kill()
        assert up.wait(60) == 1
        assert "archive plant was killed by SIGKILL" in up.stderr.read()


@pytest.mark.parametrize(
    ("archives", "why"),
    [
        ('a = "plant.toml"', "archives.a: a node, broker or process has this name, too"),
        ('other = "plant.toml"', "archives.other: "),
        ('none = "none.toml"', "none.toml: cannot be read"),
        ("x = { archive = { folder = 'h' } }", "archives.x: "),
        ("x = { archive = { folder = 'h', log = 'l' } }\ny = { archive = { folder = 'h', log = 'l' } }", "of another"),
    ],
)
def test_a_wrong_archive_is_explained(tmp_path: Path, archives: str, why: str) -> None:
    file, _ = deployment(tmp_path)
    with_archives(tmp_path)
    file.write_text(f"dev = true\n[nodes]\na = 'a.toml'\nb = 'b.toml'\n[archives]\n{archives}\n")
    assert why in chappe("up", "--check", file, code=2).stderr


def test_archives_are_not_run_in_the_process_of_nodes(tmp_path: Path) -> None:
    file, _ = with_archives(tmp_path)
    assert "an archive is a process of its own" in chappe("up", file, "--in-process", code=2).stderr


def test_a_node_that_dies_is_named_and_ends_the_rest(tmp_path: Path) -> None:
    file, _ = deployment(tmp_path)
    with started("up", file) as up:
        assert up.stdout is not None
        assert up.stderr is not None
        read_until(up.stdout, "3 nodes serve")
        nodes = node_processes(up)
        nodes["b"].kill()
        assert up.wait(40) == 1
        assert "node b was killed by SIGKILL" in up.stderr.read()
    assert not any(node.is_running() for node in nodes.values())


def test_the_rest_goes_on_if_it_shall(tmp_path: Path) -> None:
    file, ports = deployment(tmp_path)
    with started("up", file, "--keep-going") as up:
        assert up.stdout is not None
        assert up.stderr is not None
        read_until(up.stdout, "3 nodes serve")
        nodes = node_processes(up)
        nodes["b"].kill()
        read_until(up.stderr, "node b was killed")
        chappe("ls", "types", "--url", f"tcp://127.0.0.1:{ports[2]}")
        assert nodes["a"].is_running()
        up.terminate()
        assert up.wait(40) == 1  # the end was asked for, but one had died


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dev = 1\n[nodes]\n", "dev"),
        ("[nodes]\n", "there is none"),
        ('dev = true\n[nodes]\na = "none.toml"\n', "none.toml: cannot be read"),
        ('dev = true\n[nodes]\nx = "a.toml"\n', "is the file of 'a'"),
        ("dev = true\n[nodes.x]\nlisten = [{}]\n", "nodes.x: listen[0].url: this key is required"),
        ("dev = true\n[nodes.x]\ncolour = 1\n", "nodes.x: colour: this key does not exist"),
        ("[nodes\n", "mesh.toml"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, why: str) -> None:
    deployment(tmp_path)
    (tmp_path / "mesh.toml").write_text(text)
    assert why in chappe("up", "--check", tmp_path / "mesh.toml", code=2).stderr


def test_the_examples_are_a_chain_of_nodes() -> None:
    assert "3 nodes" in chappe("up", "--check", EXAMPLES / "mesh.toml").stdout
    for place, name in enumerate("abc"):
        assert (EXAMPLES / f"{name}.toml").read_text() == node_file(place, [7401, 7402, 7403])


def test_a_node_wants_certificates_and_rules(tmp_path: Path) -> None:
    pki, port = tmp_path / "pki", free_ports(1)[0]
    chappe("cert", "init", pki)
    chappe("cert", "node", pki, "tower", "--san", "127.0.0.1")
    chappe("cert", "client", pki, "ada")
    chappe("cert", "client", pki, "root", "--role", "admin")
    file = tmp_path / "tower.toml"
    file.write_text(
        f'[node]\nname = "tower"\n[[listen]]\nurl = "tls://127.0.0.1:{port}"\n'
        '[tls]\nca = "pki/ca.pem"\ncert = "pki/tower.pem"\nkey = "pki/tower.key"\n'
        '[[rule]]\naction = "publish"\npattern = "{name}/#"\nroles = ["client"]\n'
        '[[rule]]\naction = "admin"\npattern = "#"\nroles = ["admin"]\n'
    )
    assert chappe("node", "--check", file).stdout == f"{file}: ok\n"

    def options(name: str) -> tuple[object, ...]:
        url = f"tls://127.0.0.1:{port}"
        return "--url", url, "--ca", pki / "ca.pem", "--cert", pki / f"{name}.pem", "--key", pki / f"{name}.key"

    with started("node", file) as node:
        assert node.stdout is not None
        read_until(node.stdout, "serving")
        chappe("pub", "ada/x", "hello", *options("ada"))
        denied = chappe("sub", "ada/#", "--count", 1, *options("ada"), code=4)
        assert "subscribe" in denied.stderr
        assert "admin" in chappe("ls", "clients", *options("ada"), code=4).stderr
        assert chappe("ls", "clients", "--json", *options("root")).stdout
        live = chappe("dump", "--connect", *options("root")[1:2], "--count", 2, "--json", *options("root")[2:])
        assert rows(live.stdout)[1]["k"] == "Welcome"
        assert "needs" in chappe("ls", "types", "--url", f"tls://127.0.0.1:{port}", code=2).stderr
        node.terminate()
        assert node.wait(30) == 0


def test_a_port_that_is_taken_gives_code_3(tmp_path: Path) -> None:
    with started("node", "--dev", "--listen", "tcp://127.0.0.1:0") as node:
        assert node.stdout is not None
        url = read_until(node.stdout, "listening")[-1].split()[1]
        assert "in use" in chappe("node", "--dev", "--listen", url, code=3).stderr.lower()  # and ends by itself
        assert os.path.exists(f"/proc/{node.pid}")
