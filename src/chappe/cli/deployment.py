"""The file of `chappe up`: several nodes, each as the path of its own file or with its tables in this one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.errors import ConfigError

if TYPE_CHECKING:
    from chappe.node.sections import Config


class _File(msgspec.Struct, forbid_unknown_fields=True):
    nodes: dict[str, str | dict[str, Any]]
    dev: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a deployment."""

    name: str
    config: Config
    path: Path | None  # of its own file; None if its tables are in the file of the deployment


@dataclass(frozen=True, slots=True)
class Deployment:
    """Several nodes that are started together."""

    members: tuple[Member, ...]
    dev: bool


def read(path: Path) -> Deployment:
    """The deployment of a file; ConfigError names file, key and reason."""
    from chappe.node.config import check, from_table

    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not file.nodes:
        raise ConfigError(f'{path}: nodes: there is none; write NAME = "FILE" below [nodes]')
    members = []
    for name, entry in file.nodes.items():
        if isinstance(entry, str):
            own = path.parent / entry
            config = check(own, dev=file.dev)
            if config.node.name != name:
                raise ConfigError(f"{path}: nodes.{name}: {own} is the file of {config.node.name!r}; names must agree")
            members.append(Member(name, config, own))
        else:
            node = entry.get("node", {})
            table = {**entry, "node": {**node, "name": name}} if isinstance(node, dict) else entry
            members.append(Member(name, from_table(table, f"{path}: nodes.{name}", path.parent, file.dev), None))
    return Deployment(tuple(members), file.dev)
