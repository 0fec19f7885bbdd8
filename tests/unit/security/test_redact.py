"""Secrets never reach a log, wherever in an event they hide."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from chappe.errors import ConfigError
from chappe.security import Authority, datagram_key, redact
from chappe.security.redact import redacted
from chappe.security.tokens import create_key, issue
from chappe.wire.control import DatagramOpened, Hello
from tests.unit.security.conftest import now


@dataclass
class Dialled:
    host: str
    token: str


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    return issue(create_key(tmp_path_factory.mktemp("key")), "lab", "client", 60, 1_800_000_000_000_000_000)


@pytest.fixture(scope="module")
def private_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ca") / "x"
    Authority.create(folder, now())
    return (folder / "ca.key").read_text()


def written(event: str, **fields: Any) -> str:
    """What structlog really writes with the processor in its place."""
    out = io.StringIO()
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer(default=repr)],
    )
    logger.error(event, **fields)
    return out.getvalue()


def test_tokens_are_removed_wherever_they_stand(token: str) -> None:
    hello = Hello(role="client", name="lab", session=bytes(16), token=token)
    text = written(
        f"got {token} from lab", token=token, message=hello, deep=[{"a": (token, {"b": hello})}],
        dialled=Dialled("west", token), shown=repr(hello), header=f"Authorization: Bearer {token}",
        cut=token[: len(token) // 2], raw=token.encode(),
    )  # fmt: skip
    for part in (*token.split("."), token[10:40]):
        assert part not in text
    assert "west" in text
    assert '"name": "lab"' in text


def test_private_keys_are_removed_even_if_cut(private_key: str) -> None:
    text = written(
        "read",
        content=private_key,
        raw=private_key.encode(),
        half=private_key[:120],
        listed=[f"x {private_key.strip()} y"],
    )
    for line in private_key.splitlines()[1:-1]:
        assert line[:30] not in text
    assert "x [PEM removed] y" in text


def test_datagram_keys_are_removed() -> None:
    key = datagram_key()
    assert len(key) == 16
    assert key != datagram_key()
    text = written("opened", answer=DatagramOpened(id=1, port=2, link=3, key=key), key=key, link_key=key)
    told = json.loads(text)
    assert told["answer"]["key"] == "[removed]"
    assert (told["key"], told["link_key"]) == ("[removed]", "[removed]")


def test_exceptions_are_searched_too(token: str) -> None:
    try:
        raise ConfigError(f"bad token {token}")
    except ConfigError as error:
        text = written("failed", exc_info=True, error=error)
    assert token not in text
    assert "ConfigError" in text
    assert "[token removed]" in text


@pytest.mark.parametrize(
    "name", ["password", "client_token", "SECRET", "private_key", "link.key", "passphrase", "credentials"]
)
def test_fields_with_a_secret_name_are_removed(name: str) -> None:
    assert redacted({name: "hunter2"}) == {name: "[removed]"}


@pytest.mark.parametrize("text", ["token=hunter2", "password: hunter2", "CLIENT_SECRET = hunter2,", "Bearer hunter2"])
def test_secrets_in_the_middle_of_a_text_are_removed(text: str) -> None:
    assert redacted(f"could not use {text} here") == f"could not use {text.replace('hunter2', '[removed]')} here"


def test_what_is_no_secret_stays() -> None:
    event = {
        "event": "up", "key": "links.west.host", "tokens": 3, "token": None, "monkey": "x", "port": 1,
        "public_key": "a", "list": ["a", 1, None, True], "rate_hz": 2.5, "raw": b"abc",
    }  # fmt: skip
    assert redact(None, "info", dict(event)) == event


@pytest.mark.parametrize("text", ["eyJ" * 20_000, "a-" * 30_000, "token" + " " * 60_000, "-----BEGIN X-----" * 4_000])
def test_hostile_texts_take_linear_time(text: str) -> None:
    start = time.process_time()
    redacted(text)
    assert time.process_time() - start < 5


def test_deep_and_cyclic_values_end(token: str) -> None:
    cycle: list[Any] = [token]
    cycle.append(cycle)
    assert token not in repr(redacted(cycle))
