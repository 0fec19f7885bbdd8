"""`chappe token`: signed tokens for clients that have no certificate."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chappe.cli._failures import failures
from chappe.cli.cert import ClientRole, Name
from chappe.errors import ConfigError
from chappe.security import files
from chappe.security.config import Rule
from chappe.security.rules import ACTIONS, check_rule
from chappe.security.tokens import create_key, issue, load_public_keys, load_signing_key, unverified, verify

app = typer.Typer(
    name="token",
    help="Make, show and revoke signed tokens of clients.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_out = Console(soft_wrap=True, highlight=False)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the token key.", show_default=False)]


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    if not found:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def _rule(text: str) -> Rule:
    action, _, pattern = text.removeprefix("!").partition(":")
    for known in ACTIONS:
        if action == known:
            rule = Rule(known, pattern, deny=text.startswith("!"))
            try:
                check_rule(rule, repr(text))
            except ConfigError as error:
                raise typer.BadParameter(str(error)) from None
            return rule
    raise typer.BadParameter(f"{text!r}: write ACTION:PATTERN, with an action of {', '.join(ACTIONS)}")


@app.command(
    epilog='Example:  [bold]chappe token key pki[/bold], then [tokens] keys = \\["pki/token.pub"] on every node'
)
def key(folder: Folder) -> None:
    """Make a signing key: DIR/token.key for whoever issues tokens, DIR/token.pub for every node."""
    with failures():
        made = create_key(folder)
        _out.print(f"key {made.kid}: {folder / 'token.key'} (secret), {folder / 'token.pub'} (for nodes)", markup=False)


@app.command(
    "issue", epilog="Example:  [bold]TOKEN=$(chappe token issue pki lab --ttl 8h --rule 'subscribe:grid/#')[/bold]"
)
def issue_command(
    folder: Folder,
    name: Name,
    role: Annotated[ClientRole, typer.Option(help="What the bearer may be.")] = ClientRole.client,
    ttl: Annotated[str, typer.Option(help="How long it lives: 90s, 30m, 12h, 7d.")] = "24h",
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="ACTION:PATTERN, or !ACTION:PATTERN to deny; repeat it. The token then gives these rights only."
        ),
    ] = None,
) -> None:
    """Print a signed token for NAME, and nothing else."""
    ttl_s = _seconds(ttl)
    rules = tuple(_rule(text) for text in rule) if rule else None
    with failures():
        signing = load_signing_key(folder / "token.key")
        typer.echo(issue(signing, name, role.value, ttl_s, time.time_ns(), rules))


@app.command(epilog="Example:  [bold]echo $TOKEN | chappe token show - --key pki/token.pub[/bold]")
def show(
    token: Annotated[
        str, typer.Argument(metavar="[TOKEN]", help="The token, or - to read it from standard input.")
    ] = "-",
    public: Annotated[Path | None, typer.Option("--key", help="Verify with this public key, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Show what a token says; with --key also whether it is true (exit code 1 if not)."""
    with failures():
        text = (sys.stdin.read(16_384) if token == "-" else token).strip()
        header, claims = unverified(text)
        if public is not None:
            verify(text, load_public_keys([public]), time.time_ns(), leeway_s=0)
        shown: dict[str, Any] = {"verified": public is not None, "key": header.get("kid"), **claims}
        if as_json:
            typer.echo(json.dumps(shown, indent=2))
            return
        table = Table("claim", "value", show_header=False)
        for name, value in shown.items():
            table.add_row(Text(_printable(name)), Text(_readable(name, value)))
        _out.print(table)


@app.command(epilog="Example:  [bold]chappe token revoke revoked.txt name:lab[/bold], then SIGHUP every node")
def revoke(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file of [tokens] revoked.", show_default=False)],
    which: Annotated[
        str, typer.Argument(metavar="ID", help="A token's identifier (jti), or name:NAME.", show_default=False)
    ],
) -> None:
    """Add a token, or all tokens of a name, to the list of revoked ones."""
    if not re.fullmatch(r"(name:)?[A-Za-z0-9._-]{1,64}", which):
        raise typer.BadParameter(f"{which[:80]!r} is neither an identifier nor name:NAME", param_hint="ID")
    with failures(), files.locked(path.absolute().parent):
        old = files.read(path, "the list of revoked tokens") if path.exists() else b""
        whole = old if not old or old.endswith(b"\n") else old + b"\n"
        stamp = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        files.write(path, whole + f"{which}  # {stamp}\n".encode(), replace=True)
        _out.print(f"{which} revoked in {path}; SIGHUP every node that has it", markup=False)


def _readable(name: str, value: Any) -> str:
    if name in ("iat", "exp", "nbf") and isinstance(value, int) and 0 <= value < 253_402_300_800:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return _printable(value) if isinstance(value, str) else json.dumps(value)


def _printable(text: str) -> str:
    """A token comes from anybody: nothing in it may steer the terminal."""
    return text if text.isprintable() else json.dumps(text)
