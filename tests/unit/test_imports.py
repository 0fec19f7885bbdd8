"""Down is the only direction of imports, in compiled modules too: import-linter does not read `.pyx`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE, BENCHES = ROOT / "src", ROOT / "bench"
IMPORT = re.compile(
    r"^\s*(?:from\s+((?:chappe|bench)[\w.]*)\s+c?import\s+(\w+)|c?import\s+((?:chappe|bench)[\w.]*))", re.MULTILINE
)


def layers() -> list[set[str]]:
    """The packages of each layer, highest first, as import-linter reads them; the benches are below the commands."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    commands, *others = [{name.strip(" ()") for name in layer.split("|")} for layer in contract["layers"]]
    return [commands, {"bench"}, *others]


def imports(text: str) -> set[str]:
    """Packages below `chappe`, and `bench`, that a source text imports or cimports."""
    found = set()
    for module, name, plain in IMPORT.findall(text):
        parts = (plain or module).split(".")
        found.add("bench" if parts[0] == "bench" else parts[1] if len(parts) > 1 else name)
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
    assert imports("from bench._a cimport B\nimport bench\n") == {"bench"}
    assert forbidden("engine", {"bench"}) == {"bench"}
    assert forbidden("bench", {"engine", "cli"}) == {"cli"}
    assert forbidden("links", {"engine", "links", "node", "errors"}) == {"node"}
    assert forbidden("client", {"node", "wire"}) == {"node"}


def sources(pattern: str) -> list[Path]:
    return sorted([*SOURCE.rglob(pattern), *BENCHES.rglob(pattern)])


@pytest.mark.parametrize("path", sources("*.p[yx][xd]"), ids=lambda path: path.name)
def test_compiled_modules_import_downwards_only(path: Path) -> None:
    package = "bench" if path.is_relative_to(BENCHES) else path.relative_to(SOURCE / "chappe").parts[0]
    assert forbidden(package, imports(path.read_text())) == set()


@pytest.mark.parametrize("path", sources("*.pyx"), ids=lambda path: path.name)
def test_a_compiled_module_that_python_imports_has_types(path: Path) -> None:
    top = ROOT if path.is_relative_to(BENCHES) else SOURCE
    module = ".".join(path.relative_to(top).with_suffix("").parts)
    users = [
        user.relative_to(ROOT).as_posix()
        for user in sources("*.py")
        if re.search(
            rf"^\s*(from {re.escape(module)} import|import {re.escape(module)}\b)", user.read_text(), re.MULTILINE
        )
    ]
    assert not users or path.with_suffix(".pyi").exists(), f"{users} import {module}, which has no .pyi"


def test_a_node_that_does_not_measure_loads_no_numerical_library() -> None:
    heavy = "numpy", "scipy", "rustworkx", "pyarrow"
    program = f"import sys, chappe.runtime.build; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
