"""Chappe of another commit, built from this checkout's history, so that both can be measured in one run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from chappe.errors import ChappeError

BUILD_S = 1800.0
# What drives a node in `bench peers`: the same in both trees, or a difference may be its own.
GENERATOR = ("_channel.pyx", "_publish.pyx", "_subscribe.pyx", "_pingpong.pyx", "_scan_chappe.pyx")


@dataclass(frozen=True)
class Tree:
    """A built source tree."""

    sha: str
    folder: Path


def checkout() -> Path:
    """The top of the git checkout that this package runs from; ChappeError if it does not."""
    package = Path(__file__).resolve().parents[1]
    try:
        top = Path(_git(package, "rev-parse", "--show-toplevel"))
    except ChappeError:
        top = None
    if top is None or not (top / "setup.py").exists():
        raise ChappeError("--against needs a git checkout of Chappe: clone it, `make build`, and run it from there")
    return top


def build(commit: str, trees: Path) -> Tree:
    """That commit below `trees`, compiled; one that was built before is used again."""
    top = checkout()
    try:
        sha = _git(top, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except ChappeError:
        raise ChappeError(
            f"--against {commit}: this checkout has no such commit; `git log --oneline` lists them"
        ) from None
    folder = (trees / sha[:12]).resolve()
    if (folder / "built").exists():
        return Tree(sha, folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _unpack(top, sha, folder)
    _compile(folder)
    (folder / "built").touch()
    return Tree(sha, folder)


def generators_differ(tree: Tree) -> list[str]:
    """Files of the load generator that are not the same there and here."""
    there, here = _benches(tree.folder), Path(__file__).parent
    return [name for name in GENERATOR if _words(there / name) != _words(here / name)]


def module(name: str, tree: Path | None = None) -> str:
    """A module of the benches as `tree` names it."""
    return name if tree is None or (tree / "bench" / "__init__.py").exists() else f"chappe.{name}"


def trees() -> Path:
    """Where built commits are kept, outside of every checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chappe" / "trees"


def _benches(tree: Path) -> Path:
    return (tree if (tree / "bench" / "__init__.py").exists() else tree / "src" / "chappe") / "bench"


def _words(source: Path) -> str:
    return source.read_text().replace("chappe.bench", "bench")


def here() -> str:
    """What is measured against it: the commit of this checkout, and whether something was changed since."""
    top = checkout()
    changed = " with changes" if _git(top, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{_git(top, 'rev-parse', '--short=12', 'HEAD')}{changed}"


def _unpack(top: Path, sha: str, folder: Path) -> None:
    with tempfile.TemporaryFile() as packed:
        subprocess.run(["git", "archive", sha], cwd=top, stdout=packed, check=True)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(folder, filter="data")


def _compile(folder: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--parallel", str(os.cpu_count() or 1)]
    log = folder / "build.txt"
    with log.open("wb") as out:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=BUILD_S, check=False
        )
    if done.returncode:
        last = [line for line in log.read_text(errors="replace").splitlines() if "warning" not in line][-5:]
        raise ChappeError(f"commit {folder.name} does not build (see {log}): " + " / ".join(last))


def _git(top: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=top, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ChappeError("git is missing: sudo apt install git") from None
    if done.returncode:
        raise ChappeError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
