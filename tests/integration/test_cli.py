"""The commands that talk to one node, as a user or a script calls them."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chappe.cli import _failures
from chappe.cli._target import DEFAULT_URL
from chappe.cli.app import COMMANDS
from chappe.runtime.process import DEFAULT_URL as NODE_URL
from tests.support.commands import COMMAND, ENVIRONMENT, chappe, read_until, rows, started

HEAVY = (
    "uvloop",
    "msgspec",
    "cryptography",
    "pyarrow",
    "structlog",
    "chappe.core",
    "chappe.runtime",
    "chappe.client",
    "chappe.engine",
)


@pytest.fixture
def url() -> Iterator[str]:
    """A node as a user starts it, on a free port."""
    with started("node", "--dev", "--name", "tower", "--listen", "tcp://127.0.0.1:0") as node:
        assert node.stdout is not None
        yield read_until(node.stdout, "listening")[-1].split()[1]


def test_commands_use_the_address_that_a_node_has_by_default() -> None:
    assert DEFAULT_URL == NODE_URL


def test_help_lists_every_command_and_loads_none() -> None:
    program = (
        "import sys\nfrom chappe.cli.app import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    for name, entry in COMMANDS.items():
        assert re.search(rf"\b{name} +{re.escape(entry.line[:40])}", done.stdout), name
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_comes_at_once() -> None:
    def cpu_s(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Time of the processor, beside what typer itself costs: a machine that is busy or slow does not decide.
    both = [
        (cpu_s(*COMMAND, "--help"), cpu_s(sys.executable, "-c", "import typer, typer.rich_utils")) for _ in range(3)
    ]
    assert min(ours for ours, _ in both) < 1.8 * min(bare for _, bare in both)


def test_every_command_has_help() -> None:
    """One process for all of them: most of the time of a process is the loading of what they have in common."""
    program = (
        f"from chappe.cli.app import run\nfor name in {list(COMMANDS)!r}:\n"
        "    print('\\0', end='')\n"
        "    try:\n        run([name, '--help'])\n    except SystemExit as end:\n        assert not end.code, name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    for (name, entry), text in zip(COMMANDS.items(), done.stdout.split("\0")[1:], strict=True):
        assert f"chappe {name}" in text
        if ":app" not in entry.place:
            assert "Examples:" in text, name
            assert entry.line.split(",")[0].rstrip(".") in " ".join(text.split())


def test_the_reference_names_every_command_and_exit_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    assert {name for name in COMMANDS if f"`chappe {name}" not in page} == set()
    codes = [_failures.DONE, _failures.FAILED, _failures.USAGE, _failures.UNREACHABLE, _failures.REFUSED]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == [str(code) for code in [*codes, _failures.INTERRUPTED]]


def test_version() -> None:
    versions = json.loads(chappe("version", "--json").stdout)
    assert versions.keys() == {"chappe", "wire", "python"}
    assert chappe("--version").stdout == f"chappe {versions['chappe']}\n"


def test_a_subscriber_prints_what_is_published(url: str) -> None:
    with started("sub", "plant/#", "--count", 2, "--json", "--url", url) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        read_until(subscriber.stderr, "subscribed")
        chappe("pub", "plant/a/alarm", "valve 7", "--priority", 0, "--property", "severity=2", "--url", url)
        chappe("pub", "elsewhere", "not this one", "--url", url)
        assert json.loads(chappe("pub", "plant/b", "–", "--json", "--url", url).stdout) == {"published": 1}
        first, second = rows(subscriber.stdout.read())
        assert subscriber.wait(30) == 0
    assert (first["topic"], first["body"], first["priority"]) == ("plant/a/alarm", "valve 7", 0)
    assert first["properties"] == {"severity": 2}
    assert (second["topic"], second["body"]) == ("plant/b", "–")


def test_text_of_others_does_not_steer_the_terminal(url: str) -> None:
    with started("sub", "#", "--count", 2, "--url", url) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        read_until(subscriber.stderr, "subscribed")
        chappe("pub", "lines", "--stdin", "--url", url, stdin=b"\x1b[2Jred\nplain\n")
        assert subscriber.stdout.read() == "lines  \\x1b[2Jred\nlines  plain\n"


def test_many_events_arrive_in_order(url: str) -> None:
    lines = [f"line {number}" for number in range(5000)]
    with started("sub", "log/+", "--count", len(lines), "--url", url) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        read_until(subscriber.stderr, "subscribed")
        chappe("pub", "log/host", "--stdin", "--url", url, stdin="\n".join(lines))
        assert subscriber.stdout.read().splitlines() == [f"log/host  {line}" for line in lines]


def test_members_of_a_group_share_the_events(url: str) -> None:
    options = ("jobs", "--group", "workers", "--count", 5, "--json", "--url", url)
    with started("sub", *options) as one, started("sub", *options) as two:
        for member in (one, two):
            assert member.stderr is not None
            read_until(member.stderr, "subscribed")
        assert [row["group"] for row in rows(chappe("ls", "topics", "--json", "--url", url).stdout)] == ["workers"]
        chappe("pub", "jobs", "work", "--count", 10, "--url", url)
        assert one.stdout is not None
        assert two.stdout is not None
        shares = [{row["sequence"] for row in rows(member.stdout.read())} for member in (one, two)]
    assert len(shares[0]) == len(shares[1]) == 5
    assert not shares[0] & shares[1]


def test_a_subscriber_that_waits_in_vain_says_so(url: str) -> None:
    done = chappe("sub", "nobody/here", "--count", 1, "--seconds", 0.3, "--url", url, code=1)
    assert "1 of 1 events did not come" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_the_normal_end_of_a_subscriber(url: str, number: signal.Signals) -> None:
    with started("sub", "#", "--url", url) as subscriber:
        assert subscriber.stderr is not None
        read_until(subscriber.stderr, "subscribed")
        subscriber.send_signal(number)
        assert subscriber.wait(30) == 0
        assert subscriber.stderr.read() == ""


def test_values_are_watched_at_the_interval_asked_for(url: str) -> None:
    common = ("--wait", 20, "--json", "--url", url)
    publishing = ("pub", "--variable", "meter/frequency", "--rate", 50, "--count", 100, "--url", url, "50.01", "50.02")
    with (
        started("watch", "meter/frequency", "--count", 40, *common) as full,
        started("watch", "meter", "frequency", "--count", 8, "--interval", 0.1, *common) as thin,
    ):
        # Both have asked before the first value: a late watcher would get the newest one out of turn.
        wait_for_clients(url, 2)
        chappe(*publishing)
        assert full.stdout is not None
        assert thin.stdout is not None
        every, some = rows(full.stdout.read()), rows(thin.stdout.read())
    assert len(every) == 40
    assert len(some) == 8
    assert [row["value"] for row in every] == [50.01, 50.02] * 20
    rounds = [(row["created"] * 50 + 500_000_000) // 1_000_000_000 for row in some]
    assert all(number % 5 == 0 for number in rounds)
    assert {row["created"] for row in some[:4]} <= {row["created"] for row in every}


def wait_for_clients(url: str, count: int) -> None:
    """Until so many watchers are connected and have asked, seen from outside."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        clients = rows(chappe("ls", "clients", "--json", "--url", url).stdout)
        if sum(row["name"].startswith("watch") and row["control_in"] > 0 for row in clients) >= count:
            return
    raise AssertionError("the watchers did not connect")


def test_what_a_node_knows_is_listed(url: str) -> None:
    chappe("pub", "--variable", "meter/count", "--type", "int", "7", "--url", url)
    (row,) = rows(chappe("ls", "variables", "--json", "--url", url).stdout)
    assert (row["publisher"], row["variable"], row["type"]) == ("meter", "count", "int")
    assert rows(chappe("ls", "publishers", "--json", "--url", url).stdout) == [{"publisher": "meter", "variables": 1}]
    assert rows(chappe("ls", "types", "--json", "--url", url).stdout) == [{"type": "int", "variables": 1}]
    assert "meter" in chappe("ls", "variables", "--url", url).stdout
    assert "no topics" in chappe("ls", "topics", "--url", url).stderr
    assert chappe("ls", "links", "--json", "--url", url).stdout == ""
    (client,) = rows(chappe("ls", "clients", "--json", "--url", url).stdout)
    assert client["name"].startswith("ls-")


def test_top_shows_rates_and_connections(url: str) -> None:
    with started("pub", "busy", "x", "--count", 100_000, "--rate", 200, "--url", url) as publisher:
        (name,) = {row["name"] for row in clients_named(url, "pub-")}
        (row,) = rows(chappe("top", "--once", "--interval", 1, "--json", "--url", url).stdout)
        table = chappe("top", url, "--once", "--interval", 0.2).stdout
        publisher.send_signal(signal.SIGINT)
        assert publisher.wait(30) == 130
    assert row["node"] == "tower"
    assert 0 < row["rates"]["events_in"] < 1000
    assert {client["name"] for client in row["clients"]} >= {name}
    assert row["links"] == []
    assert "tower" in table
    assert name in table


def clients_named(url: str, start: str) -> list[dict[str, object]]:
    """The connected clients with such a name, once there is one that publishes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = rows(chappe("ls", "clients", "--json", "--url", url).stdout)
        if any(row["name"].startswith(start) and row["events_in"] for row in found):
            return [row for row in found if row["name"].startswith(start)]
    raise AssertionError(f"no client {start}")


def test_a_request_is_answered(url: str) -> None:
    answering = f"""
import asyncio, chappe
async def main():
    async with chappe.connect({url!r}) as client:
        subscription = await client.subscribe("time/now")
        print("ready", flush=True)
        async for message in subscription:
            await message.respond(b"late, " + message.body)
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", answering], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as server:
        try:
            read_until(server.stdout, "ready")
            assert chappe("request", "time/now", "Ada", "--url", url).stdout == "late, Ada\n"
            assert json.loads(chappe("request", "time/now", "--json", "--url", url).stdout)["body"] == "late, "
        finally:
            server.kill()
    assert "no answer" in chappe("request", "time/now", "--timeout", 0.2, "--url", url, code=1).stderr


MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("pub", "a//b", "x"), 2, "empty level"),
    (("pub", "topic"), 2, "TOPIC BODY"),
    (("pub", "--variable", "meter", "1"), 2, "PUBLISHER/VARIABLE"),
    (("pub", "--variable", "a/b", "one"), 2, "'one' is no float"),
    (("pub", "--variable", "a/b", "--type", "text", "1"), 2, "--type 'text'"),
    (("sub", "a/#/b"), 2, "'#' is the last level"),
    (("watch", "no/such"), 1, "no variable no/such"),
    (("ls", "cats"), 2, "cats"),
    (("dump",), 2, "FILE"),
    (("dump", "no-such-file"), 2, "no such file"),
    (("nod",), 2, "nod"),
    (("ls", "types", "--ca", "ca.pem"), 2, "tls"),
    (("ls", "types", "--token-file", "no-such-file"), 2, "cannot be read"),
    (("node",), 2, "--dev"),
    (("node", "--dev", "--listen", "tcp://192.0.2.1:7400"), 2, "not loopback"),
    (("node", "--check", "no-such-file"), 2, "no-such-file: cannot be read"),
    (("up", "no-such-file"), 2, "no-such-file: cannot be read"),
]


def test_mistakes_are_one_message_and_an_exit_code(url: str) -> None:
    def told(arguments: tuple[str, ...], code: int, why: str) -> None:
        remote = arguments[0] not in ("node", "up", "nod")
        done = chappe(*arguments, *(("--url", url) if remote else ()), code=code)
        assert why in done.stderr.replace("│", ""), arguments

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(told, *zip(*MISTAKES, strict=True)))


@pytest.mark.parametrize("command", [("ls", "types"), ("sub", "a"), ("pub", "a", "b"), ("top", "--once")])
def test_a_node_that_is_not_there_gives_code_3(command: tuple[str, ...]) -> None:
    done = chappe(*command, "--url", "tcp://127.0.0.1:1", code=3)
    assert done.stderr == "error: tcp://127.0.0.1:1: Connection refused\n"


def test_whoever_reads_the_output_may_stop_reading(url: str) -> None:
    chappe("pub", "--variable", "meter/x", "--rate", 100, "--count", 1, "1", "--url", url)
    line = f"{' '.join(COMMAND)} ls counters --url {url} | head -n 1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=ENVIRONMENT, timeout=20)
    assert done.stderr == ""


def test_frames_of_a_live_port_and_of_a_file_are_decoded(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = chappe("dump", "--connect", url, "--sub", "a/#", "--count", 3, "--json")
    preamble, welcome, answer = rows(done.stdout)
    assert preamble["kind"] == "preamble"
    assert (welcome["k"], welcome["name"]) == ("Welcome", "tower")
    assert (answer["k"], answer["id"]) == ("Done", 1)
    file = tmp_path_factory.mktemp("dump") / "bytes"
    file.write_bytes(b"CHAPPE\x02\x00" + b"\x04\x00\x00\x10" + bytes(16))
    assert [row["kind"] for row in rows(chappe("dump", file, "--json").stdout)] == ["preamble", "PROBE"]
    assert "PROBE" in chappe("dump", "-", stdin=file.read_bytes()).stdout
    file.write_bytes(b"CHAPPE\x02\x00\x99")
    assert "error" in chappe("dump", file, code=1).stdout
