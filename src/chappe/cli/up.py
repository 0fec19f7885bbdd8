"""`chappe up`: a whole deployment on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import exit_code, say_error
from chappe.errors import ChappeError, ConfigError

if TYPE_CHECKING:
    from chappe.archive.config import Config as ArchiveConfig
    from chappe.cli._deployment import Deployment

EXAMPLES = (
    "chappe up grid.toml",
    "chappe up grid.toml --only north   # one broker, router, archive or process of it",
    "chappe up mesh.toml --keep-going",
    "chappe up mesh.toml --in-process   # all nodes in one process, for tests",
)


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the deployment.", show_default=False)],
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Leave the others running if one dies.")] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="All nodes in this process.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong with the files, and end.")] = False,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Run this process of the file alone.")] = None,
) -> None:
    r"""Run a whole deployment on this machine.

    Each broker and router is a process, and routers with the same word in `process` share one; Ctrl-C or SIGTERM
    drains all of them. If one dies the others are stopped and the exit code is 1.

    The file has \[\[broker]], \[\[router]] and \[\[channel]]; brokers configure the routers. Without brokers it has
    a table \[nodes]: NAME = "FILE" for nodes with a file of their own, and \[nodes.NAME] with the tables of a node.
    A table \[archives] names archives in the same way; they start last and end first.
    dev = true is `chappe node --dev` for all.
    """
    import uvloop

    from chappe.cli._deployment import read
    from chappe.cli._running import run_apart

    try:
        deployment = read(file)
        if check:
            typer.echo(f"{file}: ok, {contents(deployment)}")
            return
        if only is not None or in_process:
            code = _run_here(deployment, only)
        else:
            job = run_apart(file, deployment, keep_going, f"{contents(deployment)} serve")
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(job)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


def contents(deployment: Deployment) -> str:
    """What there is in it, in words."""
    topology = deployment.topology
    kinds: dict[str, Sized] = {"node": deployment.processes}
    if topology is not None:
        kinds = {"broker": topology.broker, "router": topology.router, "channel": topology.channel}
    if deployment.archives:
        kinds["archive"] = deployment.archives
    return ", ".join(_counted(rows, kind) for kind, rows in kinds.items())


def _counted(rows: Sized, kind: str) -> str:
    return f"{len(rows)} {kind}{'s' * (len(rows) != 1)}"


def _run_here(deployment: Deployment, only: str | None) -> int:
    """Everything, or one process or node of it, in this process."""
    from chappe.runtime.process import run_node
    from chappe.runtime.together import run_nodes

    for archive in deployment.archives:
        if archive.name == only:
            return _run_archive(archive.config)
    if only is None and deployment.archives:
        raise ConfigError("--in-process: an archive is a process of its own; leave the option or [archives] out")
    chosen = [process for process in deployment.processes if only in (None, process.name)]
    members = [member for process in chosen for member in process.members]
    if not members:
        members = [each for process in deployment.processes for each in process.members if each.node.name == only]
    if not members:
        known = ", ".join(process.name for process in deployment.everything)
        raise ConfigError(f"--only {only}: there is no such node (nodes: {known})")
    if only is None:
        return run_nodes(members, f"{contents(deployment)} serve", dev=deployment.dev)
    if len(members) > 1:
        return run_nodes(members, "serving", dev=deployment.dev)
    return run_node((chosen[0].path if chosen else None) or members[0], dev=deployment.dev)


def _run_archive(config: ArchiveConfig) -> int:
    from chappe.archive.process import run

    return run(config)
