"""`make spec`: every row of the specification, the tests that demonstrate it, and how they ended last time."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.spec.rows import Row, load_rows, open_rows

RESULTS = Path(".stamps/results.json")
STYLES = {"passed": "green", "failed": "bold red", "not run": "yellow", "no test": "dim"}


class Marked:
    """pytest plugin that notes which collected tests name which rows."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("spec"):
                for row in marker.args:
                    self.tests[row].append(item.nodeid)


def collect() -> dict[str, list[str]]:
    """Identifiers of the tests that name each row; ends the program if the tests cannot be collected."""
    marked, output = Marked(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider"], plugins=[marked])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(output.getvalue() + "make spec: the tests above cannot be collected")
    return marked.tests


def state(tests: list[str], outcomes: dict[str, str]) -> str:
    """`passed` only if every test of the row passed in the last run."""
    if not tests:
        return "no test"
    seen = [outcomes.get(test, "not run") for test in tests]
    if "failed" in seen:
        return "failed"
    return "passed" if all(outcome == "passed" for outcome in seen) else "not run"


def short(tests: list[str]) -> str:
    """Names of test functions with their files, cases of one function counted instead of listed."""
    cases: dict[str, int] = defaultdict(int)
    for test in tests:
        cases[test.partition("[")[0].removeprefix("tests/")] += 1
    return "\n".join(name if count == 1 else f"{name} ({count} cases)" for name, count in cases.items())


def print_tables(rows: dict[str, Row], tests: dict[str, list[str]], states: dict[str, str], known: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("row", "about", "tests", "last run", title=f"{len(rows)} rows of the specification")
    for row in rows.values():
        shown = states[row.id]
        table.add_row(row.id, row.title, short(tests.get(row.id, [])), f"[{STYLES[shown]}]{shown}[/]")
    console.print(table)
    summary = Table("group", "rows", "with a test", "passed", "failed", title="summary")
    for group in dict.fromkeys(row.group for row in rows.values()):
        inside = [states[row.id] for row in rows.values() if row.group == group]
        summary.add_row(group, *_counts(inside))
    summary.add_section()
    summary.add_row("all", *_counts(list(states.values())))
    console.print(summary)
    if not known:
        console.print("No results yet: `make test` records them.")


def _counts(states: list[str]) -> tuple[str, str, str, str]:
    tested = len(states) - states.count("no test")
    return str(len(states)), str(tested), str(states.count("passed")), str(states.count("failed"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make spec", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object a row instead of tables")
    parser.add_argument("--open", action="store_true", help="only the rows without a test, as the docs list them")
    options = parser.parse_args()
    if options.open:
        print(open_rows(), end="")
        return
    rows, tests = load_rows(), collect()
    known = RESULTS.exists()
    outcomes: dict[str, str] = json.loads(RESULTS.read_text()) if known else {}
    states = {row: state(tests.get(row, []), outcomes) for row in rows}
    if options.json:
        print(json.dumps([
            {"row": row.id, "about": row.title, "tests": tests.get(row.id, []), "state": states[row.id]}
            for row in rows.values()
        ]))  # fmt: skip
    else:
        print_tables(rows, tests, states, known)


if __name__ == "__main__":
    main()
