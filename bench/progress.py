"""What a bench shows while it runs: the case at hand, how many are done, time gone and left. Nothing on a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

WIDTH = 60
Case = TypeVar("Case")
_shown: dict[Console, Progress] = {}  # a terminal has one, to which bars within bars are added


class _Counted(MofNCompleteColumn):
    """Nothing where cases are not counted."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


class _Left(ProgressColumn):
    """An estimate where cases are counted, the longest it may take where they are not."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._estimate = TimeRemainingColumn(compact=True)

    def render(self, task: Task) -> Text:
        if longest := task.fields.get("longest"):
            return Text(f"of at most {longest}", style="dim")
        return Text.assemble(self._estimate.render(task), (" left", "dim"))


@contextmanager
def whole(console: Console, name: str, longest: str) -> Iterator[None]:
    """The line of the bench itself."""
    with _progress(console) as progress:
        task = progress.add_task(name, total=None, longest=longest)
        try:
            yield
        finally:
            progress.remove_task(task)


@contextmanager
def steps(console: Console, title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Call the result when a step begins, with its name."""
    with _progress(console) as progress:
        task = progress.add_task(title, total=total)
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            progress.update(task, description=f"{title}: {name}"[:WIDTH], completed=begun)
            begun += 1

        try:
            yield begin
        finally:
            progress.remove_task(task)


def followed(
    console: Console, title: str, cases: Sequence[Case], name: Callable[[Case], object] = str
) -> Iterator[Case]:
    """The cases, one after the other; `name` says what is shown of one."""
    with steps(console, title, len(cases)) as begin:
        for case in cases:
            begin(str(name(case)))
            yield case


@contextmanager
def spans(console: Console, title: str, seconds: float) -> Iterator[Callable[[float, str], None]]:
    """Of something that takes so long: call the result with the time gone and what it does now."""
    with _progress(console) as progress:
        task = progress.add_task(title, total=seconds)

        def at(gone_s: float, now: str) -> None:
            progress.update(task, description=f"{title}: {now}"[:WIDTH], completed=round(gone_s))

        try:
            yield at
        finally:
            progress.remove_task(task)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    if console in _shown:
        yield _shown[console]
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Counted(), TimeElapsedColumn(), _Left())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        _shown[console] = progress
        try:
            yield progress
        finally:
            del _shown[console]
