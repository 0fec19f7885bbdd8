"""Which tests run side by side: files, the long ones first; those that share what is dear run one after the other."""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = ("tests/spark/", "tests/interop/")  # one session of Spark; peers that are measured
LONG = (
    "fuzz", "cli_operators", "cli", "archive_durable", "hostile", "cli_up", "mesh_pages", "bench_bandwidth",
    "bench_trust", "aggregation_cli", "mesh_losses", "bench_ending", "deploy", "deploy_generate", "node_process",
    "demo", "crash_points",
)  # fmt: skip
FIRST = (
    "tests/spark/", *(f"tests/integration/test_{name}.py" for name in LONG),
    "tests/interop/", "tests/integration/", "tests/property/", "tests/unit/sim/",
)  # fmt: skip


def group(test: str) -> str:
    """Tests of one group run in one worker, in their order."""
    file = test.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def rank(test: str) -> int:
    """What takes long begins first, so that nobody waits for it in the end."""
    return next((place for place, folder in enumerate(FIRST) if test.startswith(folder)), len(FIRST))


def files(config: pytest.Config, log: Any) -> Any:
    """The scheduler of pytest-xdist for these groups, in the order in which they were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Files(config, log)
