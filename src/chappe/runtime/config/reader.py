"""Reads the one TOML file of a node into one frozen tree; every error names file, key and reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from chappe.core.sections import Config
from chappe.errors import ConfigError
from chappe.runtime.config.checks import problems

__all__ = ["Config", "check", "from_table", "load", "parse"]

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<key>.*)`)?$", re.DOTALL)


def parse(text: str, source: str = "configuration", base: Path = Path(), dev: bool = False) -> Config:
    """The tree of a TOML text, its paths relative to `base`; ConfigError says `source: key: reason`."""
    try:
        config = msgspec.toml.decode(text, type=Config)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(source, str(error))) from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return _checked(config, source, base, dev)


def from_table(table: dict[str, Any], source: str, base: Path = Path(), dev: bool = False) -> Config:
    """The tree of a node whose tables are inside another file."""
    try:
        config = msgspec.convert(table, type=Config)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(source, str(error))) from None
    return _checked(config, source, base, dev)


def _checked(config: Config, source: str, base: Path, dev: bool) -> Config:
    config = _resolved(config, base)
    found = problems(config, dev=dev)
    if found:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in found))
    return config


def load(path: str | Path, dev: bool = False) -> Config:
    """The tree of a file; ConfigError names the file, the key and the reason."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    return parse(text, str(path), Path(path).parent, dev)


def check(path: str | Path, dev: bool = False) -> Config:
    """What `chappe node --check FILE` does: the tree, or a ConfigError with one line for each thing that is wrong."""
    config = load(path, dev)
    found = problems(config, dev=dev, files=True)
    if found:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in found))
    return config


def _resolved(config: Config, base: Path) -> Config:
    return msgspec.structs.replace(
        config,
        tls=config.tls and config.tls.resolved(base),
        tokens=config.tokens and config.tokens.resolved(base),
        audit=config.audit and config.audit.resolved(base),
        metrics=config.metrics.resolved(base),
        manages=config.manages and config.manages.resolved(base),
    )


def explain(source: str, message: str) -> str:
    """What msgspec found wrong, as `source: key: reason`."""
    found = _WHERE.match(message)
    assert found is not None  # the pattern matches every text
    what, key = found["what"], found["key"]
    unknown = re.match(r"Object contains unknown field `(?P<field>.*)`", what)
    if unknown:
        key = f"{key}.{unknown['field']}" if key else unknown["field"]
        what = "this key does not exist"
    missing = re.match(r"Object missing required field `(?P<field>.*)`", what)
    if missing:
        key = f"{key}.{missing['field']}" if key else missing["field"]
        what = "this key is required"
    return f"{source}: {key}: {what}" if key else f"{source}: {what}"
