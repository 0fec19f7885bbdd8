"""A deployment file from a grid: one router a site, channels along branches, clouds with a leaf broker each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from chappe.cli._clouds import cut
from chappe.cli._grids import Grid
from chappe.errors import ConfigError

LAST_PORT = 65_535
HUNDRED = 100  # routers begin at a round port number above the brokers


@dataclass(frozen=True)
class GenerateOptions:
    """What is generated: sizes, ports and rates of a deployment."""

    clouds: int = 1
    base_port: int = 7500
    processes: int = 0  # of routers; 0: one each
    standby: str = ""  # postgresql:// url that two processes of each broker share
    bytes_per_s: float = 100e6
    events_per_s: float = 1e6


def deployment(grid: Grid, options: GenerateOptions, remark: str) -> str:
    """The TOML, always the same for the same grid and options; `remark` says where it comes from."""
    if not 0 <= options.processes <= len(grid.sites):
        raise ConfigError(f"--processes {options.processes}: there are {len(grid.sites)} routers; give 1 to that many")
    if options.standby and not options.standby.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            f"--standby {options.standby}: two processes share a PostgreSQL database; give postgresql://…"
        )
    cloud_of = cut(len(grid.sites), [(a, b) for a, b, _ in grid.branches], options.clouds)
    process_of = _processes(cloud_of, options)
    brokers = [*_brokers(options)]
    used = sum(len(broker["listen"]) for broker in brokers)
    first = options.base_port + -(-used // HUNDRED) * HUNDRED
    if first + len(grid.sites) > LAST_PORT:
        raise ConfigError(
            f"--base-port {options.base_port}: the ports of {len(grid.sites)} routers end above {LAST_PORT}"
        )
    routers = (
        {
            "name": site.name,
            "cloud": f"cloud-{cloud_of[place] + 1}",
            "listen": _url(first + place),
            "process": process_of[place],
            "events_per_s": options.events_per_s if options.events_per_s != GenerateOptions.events_per_s else None,
            "x": None if site.x is None else round(site.x, 3),
            "y": None if site.y is None else round(site.y, 3),
        }
        for place, site in enumerate(grid.sites)
    )
    channels = (
        {
            "between": [grid.sites[a].name, grid.sites[b].name],
            "latency_ms": latency_ms,
            "bytes_per_s": options.bytes_per_s if options.bytes_per_s != GenerateOptions.bytes_per_s else None,
        }
        for a, b, latency_ms in grid.branches
    )
    parts = (
        f'# {remark}\ndev = true\nlog = {{ level = "warning" }}\n',
        *map(_table, ("broker", "router", "channel"), (brokers, routers, channels)),
    )
    return "\n".join(parts)


def _brokers(options: GenerateOptions) -> Iterator[dict[str, Any]]:
    each = 2 if options.standby else 1
    names = [f"cloud-{number + 1}" for number in range(options.clouds)]
    root = ["root"] if options.clouds > 1 else []
    for place, name in enumerate((*root, *names)):
        port = options.base_port + place * each
        yield {
            "name": name,
            "parent": "root" if root and name != "root" else "",
            "listen": [_url(port + process) for process in range(each)],
            "store": options.standby,
            "number": None if name == "root" else names.index(name) + 1,
        }


def _processes(cloud_of: list[int], options: GenerateOptions) -> list[str]:
    """The process of each router: neighbours in one cloud share one, and all are about equally large."""
    if not options.processes:
        return [""] * len(cloud_of)
    order = sorted(range(len(cloud_of)), key=lambda place: (cloud_of[place], place))
    found = [""] * len(cloud_of)
    if options.processes % options.clouds:
        groups = [order]
    else:
        groups = [[place for place in order if cloud_of[place] == cloud] for cloud in range(options.clouds)]
    of_each = options.processes // len(groups)
    for number, group in enumerate(groups):
        for at, place in enumerate(group):
            found[place] = f"routers-{number * of_each + at * of_each // len(group) + 1}"
    return found


def _url(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def _table(key: str, rows: Iterable[dict[str, Any]]) -> str:
    """Tables of one kind, one a line; keys without a value are left out."""
    lines = (
        ", ".join(f"{name} = {_value(value)}" for name, value in row.items() if value not in (None, "")) for row in rows
    )
    return f"{key} = [\n" + "".join(f"    {{ {line} }},\n" for line in lines) + "]\n"


def _value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{int(value):_}"
    return json.dumps(value)
