"""The documentation says what is so: keys of the configuration, and files of nodes that a node would read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from chappe.core.sections import Config
from chappe.runtime.config.reader import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "configuration.md"
NODE_FILES = [
    pytest.param(block, id=f"{page.relative_to(DOCS)}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    if "[node]" in block
]


def keys_of_sections() -> dict[str, set[str]]:
    """The keys of each table of the file, from the types that read it."""
    found = {}
    for section in msgspec.structs.fields(Config):
        found[section.name] = {field.name for field in msgspec.structs.fields(_struct(section.type))}
    return found


def _struct(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _struct(inner)) is not None), None)


def keys_of_page() -> dict[str, set[str]]:
    """The keys of each table as the page lists them."""
    found = {}
    for heading, body in re.findall(
        r"^## `\[+(\w+)(?:\.KIND)?\]+`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        cells = re.findall(r"^\| (`[^|]*) \|", body, re.MULTILINE)
        found[heading] = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
    return found


def test_the_reference_names_every_key_of_the_configuration() -> None:
    assert keys_of_page() == keys_of_sections()


@pytest.mark.parametrize("text", NODE_FILES)
def test_a_node_would_read_the_files_in_the_documentation(text: str) -> None:
    assert parse(text).node.name != "node"


@pytest.mark.parametrize("page", ["concepts/architecture.md", "how-to/extend.md"])
def test_every_file_that_a_page_for_developers_names_exists(page: str) -> None:
    roots = DOCS.parent / "src" / "chappe", DOCS.parent
    named = re.findall(r"`([\w/]+\.(?:pyx|pxd|py|json))`", (DOCS / page).read_text())
    assert len(named) > 25
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []


def test_the_architecture_lists_every_package() -> None:
    source = DOCS.parent / "src" / "chappe"
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", (DOCS / "concepts" / "architecture.md").read_text(), re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    there = {path.name for path in source.iterdir() if (path / "__init__.py").is_file()} | {"sync"}
    assert listed == there - {"node"}
