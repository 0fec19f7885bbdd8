"""What holds for every test: uvloop, the specification marker, the leak check, and no skips where all is required."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import settings

from chappe.links import ports
from tests.spec.rows import load_rows
from tests.support import leaks
from tests.support.workers import files, rank

MARKED_FOLDERS = ("integration", "interop", "spark", "browser")
CHECKED_FOLDERS = ("integration", "interop")
MOST_WORKERS = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="write the outcome of each test there, for `make spec`")
    parser.addoption("--again", type=Path, help="run only those that did not pass according to that file of results")


def pytest_configure(config: pytest.Config) -> None:
    # a suite started in the background inherits an ignored SIGINT, and so would every process it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if worker := _worker(config):
        # Ports of its own: one that is free for one worker is not taken by another before a server listens there.
        number, each = int(worker.removeprefix("gw")) % MOST_WORKERS, (ports.LAST - ports.FIRST) // MOST_WORKERS
        os.environ[ports.RANGE] = f"{ports.FIRST + number * each}-{ports.FIRST + (number + 1) * each}"
    elif (path := config.getoption("--results")) is not None:
        config.pluginmanager.register(Outcomes(path, config.getoption("--again")))
    settings.register_profile("chappe", deadline=None)  # a busy machine is no counterexample
    settings.load_profile("chappe")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return files(config, log)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = load_rows()
    if (path := config.getoption("--again")) is not None:
        passed = {test for test, outcome in json.loads(path.read_text()).items() if outcome != "failed"}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    if _worker(config):
        items.sort(key=lambda item: rank(item.nodeid))
    for item in items:
        folder = item.nodeid.removeprefix("tests/").partition("/")[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        for marker in item.iter_markers("spec"):
            unknown = [row for row in marker.args if row not in rows]
            if unknown or not marker.args:
                raise pytest.UsageError(f"{item.nodeid}: no such row of the specification: {unknown or 'none named'}")
        exempt = item.get_closest_marker("may_leak")
        if exempt is not None and not (exempt.args and isinstance(exempt.args[0], str)):
            raise pytest.UsageError(f"{item.nodeid}: may_leak needs a reason")
        if folder in CHECKED_FOLDERS and exempt is None and isinstance(item, pytest.Function):
            # First in, last out: what fixtures of the test close is closed before anything is counted.
            wanted = ["leaves_nothing_open"]
            if inspect.iscoroutinefunction(item.function):
                wanted.append("leaves_no_task")
            item.fixturenames[:0] = wanted


@pytest.fixture
def leaves_nothing_open() -> Iterator[None]:
    """Fails a test that leaves a socket or a child process of its own behind."""
    open_sockets, running = leaks.sockets(), leaks.children()
    yield
    left = leaks.left(leaks.children, running) + leaks.left(leaks.sockets, open_sockets)
    if left:
        pytest.fail("left behind: " + "; ".join(left))


@pytest.fixture
async def leaves_no_task() -> AsyncIterator[None]:
    """Fails a test that leaves an asyncio task running."""
    before = leaks.tasks()
    yield
    left = await leaks.tasks_left(before)
    if left:
        pytest.fail("tasks left running: " + "; ".join(left))


@pytest.fixture(scope="session")
def mesh_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an archive that was written beside a real mesh; its log is in `log` beside it."""
    from tests.support.meshrun import run

    return run(tmp_path_factory.mktemp("mesh"), 9.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _refuse_skip(report)
    return report


def _worker(config: pytest.Config) -> str:
    """The name of this process where tests run in several, such as `gw0`; empty where it is the only one."""
    return str(getattr(config, "workerinput", {}).get("workerid", ""))


class Outcomes:
    """How each test ended, those that ran in other processes included; written at the end, for `make spec`."""

    def __init__(self, path: Path, before: Path | None = None) -> None:
        """`before`: the results of an earlier run that this one completes."""
        self.path = path
        self.found: dict[str, str] = {}
        self._before: dict[str, str] = json.loads(before.read_text()) if before is not None else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A failing teardown must not be hidden by the call that passed before it.
        if (report.when == "call" or report.outcome != "passed") and self.found.get(report.nodeid) != "failed":
            self.found[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not session.config.getoption("collectonly"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({**self._before, **self.found}, indent=0, sort_keys=True))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("CHAPPE_REQUIRE_ALL") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason}\nCHAPPE_REQUIRE_ALL=1: every test must run here"
