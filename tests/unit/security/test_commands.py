"""`chappe cert` and `chappe token`: what they print, what they leave, how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jwt
import pytest
from typer.testing import CliRunner, Result

from chappe.cli import cert, token
from chappe.security import Rule, Tls, Tokens, client_context, server_context
from chappe.security.tokens import TokenVerifier, load_revocations
from tests.unit.security.conftest import Connect

APPS = {"cert": cert.app, "token": token.app}


def run(app: str, *arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(APPS[app], [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    run("cert", "init", tmp_path / "pki")
    run("cert", "node", tmp_path / "pki", "west", "--san", "127.0.0.1")
    run("cert", "client", tmp_path / "pki", "pmu-1")
    return tmp_path / "pki"


@pytest.mark.spec("NS-012")
def test_what_the_commands_make_connects(pki: Path, connect: Connect) -> None:
    def section(name: str) -> Tls:
        return Tls(ca=f"{pki}/ca.pem", cert=f"{pki}/{name}.pem", key=f"{pki}/{name}.key", crl=f"{pki}/ca.crl")

    connect(server_context(section("west")), client_context(section("pmu-1")), "127.0.0.1").established  # noqa: B018
    run("cert", "revoke", pki, "pmu-1")
    assert connect(server_context(section("west")), client_context(section("pmu-1")), "127.0.0.1").server_error


def test_show_tells_states_for_people_and_for_scripts(pki: Path) -> None:
    run("cert", "client", pki, "ada", "--role", "admin")
    run("cert", "revoke", pki, "pmu-1")
    rows = {row["name"]: row for row in json.loads(run("cert", "show", pki, "--json").stdout)}
    assert {name: (row["role"], row["state"]) for name, row in rows.items()} == {
        "Chappe authority": ("authority", "valid"),
        "ada": ("admin", "valid"),
        "pmu-1": ("client", "revoked"),
        "west": ("node", "valid"),
    }
    assert rows["west"]["hosts"] == ["west", "127.0.0.1"]
    assert "revoked" in run("cert", "show", pki / "pmu-1.pem").stdout


def test_renewal_waits_until_it_is_due_and_changes_only_the_certificate(pki: Path) -> None:
    old, key = (pki / "west.pem").read_bytes(), (pki / "west.key").read_bytes()
    assert "not due yet" in run("cert", "renew", pki, "west", "--before", 30).stdout
    assert (pki / "west.pem").read_bytes() == old
    assert "renewed until" in run("cert", "renew", pki, "west").stdout
    assert (pki / "west.pem").read_bytes() != old
    assert (pki / "west.key").read_bytes() == key
    run("cert", "renew", pki, "west", "--new-key")
    assert (pki / "west.key").read_bytes() != key


def test_renewing_all_goes_on_past_a_broken_one(pki: Path) -> None:
    old = (pki / "west.pem").read_bytes()
    (pki / "pmu-1.pem").write_text("broken")
    result = run("cert", "renew", pki, "--all", code=1)
    assert "not renewed: pmu-1" in result.stderr
    assert (pki / "west.pem").read_bytes() != old


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("init", "{pki}"), 1, "exists already"),
        (("node", "{pki}", "west"), 1, "exists already"),
        (("node", "{pki}", "ca"), 1, "name of the authority"),
        (("node", "{pki}/nowhere", "x"), 1, "No such file"),
        (("revoke", "{pki}", "nobody"), 1, "no valid certificate of 'nobody'"),
        (("renew", "{pki}", "nobody"), 1, "nobody.pem"),
        (("show", "{pki}/west.key"), 1, "no certificate in PEM form"),
        (("node", "{pki}", "a/b"), 2, "not a name"),
        (("node", "{pki}", "x", "--san", "a b"), 2, "neither a host name nor an IP"),
        (("client", "{pki}", "x", "--role", "node"), 2, "Invalid value"),
        (("renew", "{pki}"), 2, "NAME or --all"),
        (("renew", "{pki}", "west", "--all"), 2, "NAME or --all"),
        (("renew", "{pki}", "../west"), 2, "not a name"),
        (("fly",), 2, "No such command"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(pki: Path, arguments: tuple[str, ...], code: int, why: str) -> None:
    result = run("cert", *(argument.format(pki=pki) for argument in arguments), code=code)
    assert why in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_a_real_process_ends_without_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from chappe.cli.cert import app; app()", "show", tmp_path / "[red]gone"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"error: {tmp_path}/[red]gone: the certificate cannot be read: No such file or directory\n"


def test_an_issued_token_is_believed_with_its_rules(tmp_path: Path) -> None:
    run("token", "key", tmp_path)
    rules = ("--rule", "subscribe:grid/#", "--rule", "!subscribe:grid/secret")
    text = run("token", "issue", tmp_path, "lab", "--ttl", "30m", *rules).stdout.strip()
    identity = TokenVerifier(Tokens(keys=(f"{tmp_path}/token.pub",))).verify(text, time.time_ns())
    assert identity.grants == (Rule("subscribe", "grid/#"), Rule("subscribe", "grid/secret", deny=True))
    assert identity.expires_ns is not None
    assert abs(identity.expires_ns - time.time_ns() - 1800e9) < 30e9
    shown = json.loads(run("token", "show", "--json", "--key", tmp_path / "token.pub", stdin=text).stdout)
    assert (shown["verified"], shown["sub"], shown["jti"]) == (True, "lab", identity.serial)
    run("token", "revoke", tmp_path / "revoked", identity.serial)
    run("token", "revoke", tmp_path / "revoked", "name:pmu-1")
    revoked = load_revocations(tmp_path / "revoked")
    assert (revoked.identifiers, revoked.names) == ({identity.serial}, {"pmu-1"})


def test_a_token_of_another_key_is_shown_but_not_verified(tmp_path: Path) -> None:
    run("token", "key", tmp_path / "one")
    run("token", "key", tmp_path / "two")
    text = run("token", "issue", tmp_path / "one", "lab").stdout.strip()
    assert "lab" in run("token", "show", text).stdout
    assert "signed by key" in run("token", "show", text, "--key", tmp_path / "two" / "token.pub", code=1).stderr


def test_a_hostile_token_cannot_steer_the_terminal() -> None:
    hostile = jwt.encode({"sub": "\x1b[2J[red]", "\x1b[1m": 1}, "k" * 32, algorithm="HS256")
    shown = run("token", "show", hostile).stdout
    assert "\x1b[2J" not in shown
    assert "\x1b[1m" not in shown
    assert "[red]" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("issue", "{dir}", "lab"), 1, "token.key"),
        (("issue", "{dir}", "lab", "--ttl", "8"), 2, "no duration"),
        (("issue", "{dir}", "lab", "--rule", "fly:x"), 2, "ACTION:PATTERN"),
        (("issue", "{dir}", "lab", "--rule", "publish:a/#/b"), 2, "last level"),
        (("issue", "{dir}", "l b"), 2, "not a name"),
        (("show", "junk"), 1, "no token"),
        (("revoke", "{dir}/x", "a b"), 2, "neither an identifier"),
    ],
)
def test_errors_of_token_commands(tmp_path: Path, arguments: tuple[str, ...], code: int, why: str) -> None:
    result = run("token", *(argument.format(dir=tmp_path) for argument in arguments), code=code)
    assert why in " ".join(result.stderr.replace("│", " ").split())
