"""Case local (B3): what two cells cost where nothing is slow, beside a plain stream through two bare relays."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.cells.sites import Lines
from bench.processes import Started, serving
from bench.relays import RelayChain
from bench.report import Options, Report
from chappe.links.ports import free_ports

SIZE = 25_000
MESSAGES = 40_000
SHARE = 0.8
CELLS = ("left", "right")


def run(options: Options, report: Report) -> None:
    """Both in turn, medians of five rounds."""
    messages = MESSAGES // 10 if options.quick else MESSAGES
    flows, plain = [], []
    with tempfile.TemporaryDirectory(prefix="chappe-bench-cells-") as folder, ExitStack() as stack:
        ports = dict(zip(CELLS, free_ports(2), strict=True))
        urls = {name: f"tcp://127.0.0.1:{port}" for name, port in ports.items()}
        for name, other in (CELLS, CELLS[::-1]):
            path = Path(folder) / f"{name}.toml"
            text = f'[node]\nname = "{name}"\n[log]\nlevel = "error"\n[[listen]]\nurl = "{urls[name]}"\n[cells]\n'
            text += f'[[peer]]\nname = "{other}"\n' + (f'url = "{urls[other]}"\n' if name == "left" else "")
            path.write_text(text)
            stack.enter_context(Started("chappe.node", "--dev", str(path))).until(serving)
        for _ in range(options.repeats):
            flows.append(_flow(urls, messages))
            plain.append(_plain(messages))
    report.show("local: a flow through two cells", statistics.median(flows) / 1e6, "MB/s")
    report.show("local: a plain asyncio stream through two relays", statistics.median(plain) / 1e6, "MB/s")
    ratio = statistics.median(flow / bare for flow, bare in zip(flows, plain, strict=True))
    report.compare("local: of the plain stream", ratio, "times", ">=", SHARE)


def _flow(urls: dict[str, str], messages: int) -> float:
    with Lines("bench.cells.endpoint", "receive", urls["right"], "bench.right") as receiver:
        receiver.ready()
        arguments = ("--messages", str(messages), "--size", str(SIZE))
        with Lines("bench.cells.endpoint", "send", urls["left"], "bench.left", "bench.right", *arguments) as sender:
            done = sender.done(within_s=120)
    return float(done["bytes"]) / float(done["seconds"])


def _plain(messages: int) -> float:
    with RelayChain(2) as relays, Lines("bench.cells.endpoint", "read", str(relays.sink + 1)) as reader:
        reader.ready()
        with Lines("bench.cells.endpoint", "write", str(relays.source), str(messages), str(SIZE)) as writer:
            writer.until(lambda line: '"done"' in line, 120)
        done = reader.done(within_s=120)
    return float(done["bytes"]) / float(done["seconds"])
