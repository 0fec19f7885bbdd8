"""`chappe cert`: the certificates of a mesh, from one folder."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chappe.cli._failures import failures
from chappe.errors import ChappeError, ConfigError, RefusedError
from chappe.security import authority as authorities
from chappe.security.authority import Authority, load_certificate
from chappe.security.certificates import host_name, hosts_of, identity_of, utc
from chappe.security.identity import checked_name

app = typer.Typer(
    name="cert",
    help="Make, renew, revoke and show the certificates of a mesh.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_out = Console(soft_wrap=True, highlight=False)


class ClientRole(StrEnum):
    """Roles of certificates that only connect."""

    client = "client"
    broker = "broker"
    admin = "admin"


def _name(value: str) -> str:
    try:
        return checked_name(value)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _hosts(values: list[str]) -> list[str]:
    for value in values:
        try:
            host_name(value)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None
    return values


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the authority.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", callback=_name, help="Name of the identity.", show_default=False)]
Days = Annotated[float | None, typer.Option(min=0.001, help="Lifetime in days.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the certificate and key that are there.")]


@app.command(epilog="Example:  [bold]chappe cert init pki[/bold]")
def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the authority, for people.")] = "Chappe authority",
    days: Annotated[float, typer.Option(min=1, help="Lifetime in days.")] = authorities.CA_DAYS,
) -> None:
    """Create a certificate authority in DIR. Keep DIR/ca.key off the nodes."""
    with failures():
        made = Authority.create(folder, _now(), name=name, days=days)
        _out.print(f"authority in {folder}, valid until {_day(made.certificate.not_valid_after_utc)}", markup=False)
        _out.print(f"next: chappe cert node {folder} NAME --san HOST", markup=False)


@app.command(epilog="Example:  [bold]chappe cert node pki west --san west.example.org --san 10.0.0.7[/bold]")
def node(
    folder: Folder,
    name: Name,
    san: Annotated[
        list[str] | None,
        typer.Option(
            callback=lambda given: _hosts(given or []), help="Host name or IP address others dial; may be repeated."
        ),
    ] = None,
    days: Days = authorities.NODE_DAYS,
    replace: Replace = False,
) -> None:
    """Issue a certificate for a node: DIR/NAME.pem and DIR/NAME.key."""
    with failures():
        certificate = Authority(folder).issue(name, "node", _now(), hosts=san or (), days=days, replace=replace)
        _issued(folder, name, certificate)


@app.command(
    epilog="Examples:  [bold]chappe cert client pki pmu-1[/bold],  [bold]chappe cert client pki ada --role admin[/bold]"
)
def client(
    folder: Folder,
    name: Name,
    role: Annotated[ClientRole, typer.Option(help="What it may be; rules speak of roles, too.")] = ClientRole.client,
    days: Days = authorities.CLIENT_DAYS,
    replace: Replace = False,
) -> None:
    """Issue a certificate for a client, broker or administrator."""
    with failures():
        certificate = Authority(folder).issue(name, role.value, _now(), days=days, replace=replace)
        _issued(folder, name, certificate)


@app.command(epilog="Example, daily from cron:  [bold]chappe cert renew pki --all --before 30[/bold]")
def renew(
    folder: Folder,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name, or [bold]ca[/bold].", show_default=False)
    ] = None,
    before: Annotated[float | None, typer.Option(min=0, help="Only if it expires within so many days.")] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make a new private key, too.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every name in DIR that is not revoked.")] = False,
) -> None:
    """Renew a certificate for as long as it was issued; then SIGHUP whoever uses it."""
    if (name is None) is not everything:
        raise typer.BadParameter("give a NAME or --all", param_hint="NAME")
    with failures():
        authority = Authority(folder)
        within = timedelta(days=before) if before is not None else None
        names = [_name(name)] if name is not None else _renewable(authority)
        failed = []
        for each in names:
            try:
                certificate = authority.renew(each, _now(), before=within, new_key=new_key)
            except ChappeError as error:  # one bad file must not keep the others from being renewed
                failed.append(f"{each}: {error}")
                continue
            if certificate is None:
                until = load_certificate(folder / f"{each}.pem").not_valid_after_utc
                _out.print(f"{each}: valid until {_day(until)}, not due yet", markup=False)
            else:
                _out.print(f"{each}: renewed until {_day(certificate.not_valid_after_utc)}", markup=False)
        if failed:
            raise ConfigError("not renewed: " + "; ".join(failed))


@app.command(
    epilog="Example:  [bold]chappe cert revoke pki pmu-1[/bold], then give pki/ca.crl to every node and SIGHUP it"
)
def revoke(folder: Folder, name: Name) -> None:
    """Revoke every certificate of NAME: they are listed in DIR/ca.crl."""
    with failures():
        revoked = Authority(folder).revoke(name, _now())
        _out.print(
            f"{name}: {len(revoked)} revoked; give {folder / 'ca.crl'} to every node and SIGHUP it", markup=False
        )


@app.command(epilog="Example:  [bold]chappe cert show pki --json[/bold]")
def show(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE|DIR", help="A certificate, or the folder of an authority.", show_default=False),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON array.")] = False,
) -> None:
    """Show who certificates are for, until when, and whether they are revoked."""
    with failures():
        rows = [_row(found, _revoked(path)) for found in (_in_folder(path) if path.is_dir() else [path])]
        if as_json:
            typer.echo(json.dumps(rows, indent=2))
            return
        table = Table("name", "role", "state", "until", "days", "hosts", "serial")
        for row in rows:
            cells = (row["name"], row["role"], row["state"], row["until"][:10], row["days"], " ".join(row["hosts"]))
            table.add_row(*(Text(str(cell)) for cell in (*cells, row["serial"][:12])))
        _out.print(table)


def _in_folder(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.pem"), key=lambda path: (path.stem != "ca", path.stem))
    if not found:
        raise ConfigError(f"{folder}: no certificate (*.pem) in it")
    return found


def _revoked(path: Path) -> set[int]:
    listed = (path if path.is_dir() else path.parent) / "ca.crl"
    return {entry.serial_number for entry in authorities.load_list(listed)} if listed.exists() else set()


def _row(path: Path, revoked: set[int]) -> dict[str, Any]:
    certificate = load_certificate(path)
    left = certificate.not_valid_after_utc - _now()
    try:
        identity = identity_of(certificate)
        name, role = identity.name, str(identity.role)
    except RefusedError:
        name, role = (
            certificate.subject.rfc4514_string().removeprefix("CN="),
            "authority" if path.stem == "ca" else "unknown",
        )
    state = "revoked" if certificate.serial_number in revoked else "expired" if left <= timedelta() else "valid"
    return {
        "file": str(path), "name": name, "role": role, "state": state,
        "until": certificate.not_valid_after_utc.isoformat(), "days": left.days,
        "hosts": [str(host.value) for host in hosts_of(certificate)], "serial": f"{certificate.serial_number:x}",
    }  # fmt: skip


def _renewable(authority: Authority) -> list[str]:
    revoked = authority.revoked()
    return [name for name in authority.names() if _serial(authority.folder / f"{name}.pem") not in revoked]


def _serial(path: Path) -> int | None:
    """None for a file that is broken: renewing it says how."""
    try:
        return load_certificate(path).serial_number
    except ConfigError:
        return None


def _issued(folder: Path, name: str, certificate: x509.Certificate) -> None:
    until = _day(certificate.not_valid_after_utc)
    _out.print(f"{identity_of(certificate)}: {folder / name}.pem and .key, valid until {until}", markup=False)


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


def _now() -> datetime:
    return utc(time.time_ns())
