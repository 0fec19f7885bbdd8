"""A bar that says which step of a benchmark runs; on a pipe or in a file there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def steps(console: Console, title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Call the result when a step begins, with its name."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            progress.update(task, description=f"{title}: {name}"[:60], completed=begun)
            begun += 1

        yield begin
