"""Down is the only direction of imports, in compiled modules too: import-linter does not read `.pyx`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
IMPORT = re.compile(r"^\s*(?:from\s+(chappe[\w.]*)\s+c?import\s+(\w+)|c?import\s+(chappe[\w.]*))", re.MULTILINE)


def layers() -> list[set[str]]:
    """The packages of each layer, highest first, as import-linter is told."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [{name.strip(" ()") for name in layer.split("|")} for layer in contract["layers"]]


def imports(text: str) -> set[str]:
    """Packages below `chappe` that a source text imports or cimports."""
    found = set()
    for module, name, plain in IMPORT.findall(text):
        parts = (plain or module).split(".")
        found.add(parts[1] if len(parts) > 1 else name)
    return found - {""}


def forbidden(package: str, imported: set[str]) -> set[str]:
    """Those of the imported packages that are not below the importing one."""
    order = layers()
    place = next(at for at, layer in enumerate(order) if package in layer)
    below = set().union(*order[place + 1 :])
    return imported - below - {package}


def test_the_check_sees_imports_of_every_form() -> None:
    text = "cimport chappe.node.x\nfrom chappe.client._a cimport B\n    import chappe.cli\nfrom chappe import wire\n"
    assert imports(text) == {"node", "client", "cli", "wire"}
    assert forbidden("links", {"engine", "links", "node", "errors"}) == {"node"}
    assert forbidden("client", {"node", "wire"}) == {"node"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.p[yx][xd]")), ids=lambda path: path.name)
def test_compiled_modules_import_downwards_only(path: Path) -> None:
    package = path.relative_to(SOURCE / "chappe").parts[0]
    assert forbidden(package, imports(path.read_text())) == set()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.pyx")), ids=lambda path: path.name)
def test_a_compiled_module_that_python_imports_has_types(path: Path) -> None:
    module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    users = [
        user.relative_to(ROOT).as_posix()
        for user in SOURCE.rglob("*.py")
        if re.search(
            rf"^\s*(from {re.escape(module)} import|import {re.escape(module)}\b)", user.read_text(), re.MULTILINE
        )
    ]
    assert not users or path.with_suffix(".pyi").exists(), f"{users} import {module}, which has no .pyi"
