"""The sections of a node's file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chappe.security import Audit, Rule, Tls, Tokens


class File(msgspec.Struct, forbid_unknown_fields=True):
    tls: Tls | None = None
    tokens: Tokens | None = None
    rule: tuple[Rule, ...] = ()
    audit: Audit | None = None


def test_the_sections_are_read_with_their_defaults() -> None:
    file = msgspec.toml.decode(
        """
        tls = { ca = "ca.pem", cert = "west.pem", key = "/etc/west.key" }
        tokens = { keys = ["token.pub"] }
        audit = { path = "audit.log" }
        [[rule]]
        action = ["publish", "subscribe"]
        pattern = "grid/#"
        roles = ["client"]
        [[rule]]
        action = "watch"
        pattern = ["a/+", "b/+"]
        deny = true
        """,
        type=File,
    )
    assert file.tls is not None
    assert (file.tls.minimum, file.tls.client_certificates, file.tls.verify_host, file.tls.crl) == (
        "1.3", "optional", True, "",
    )  # fmt: skip
    resolved = file.tls.resolved(Path("/conf"))
    assert (resolved.ca, resolved.key, resolved.crl) == ("/conf/ca.pem", "/etc/west.key", "")
    assert file.tokens is not None
    assert file.tokens.resolved(Path("/conf")).keys == ("/conf/token.pub",)
    assert file.audit is not None
    assert file.audit.resolved(Path("/conf")).path == "/conf/audit.log"
    assert file.rule[0].actions == ("publish", "subscribe")
    assert (file.rule[1].patterns, file.rule[1].deny) == (("a/+", "b/+"), True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('tls = { ca = "x", cert = "y" }', "`key` is missing"),
        ('tls = { ca = "x", key = "y" }', "`cert` is missing"),
        ('tls = { ca = "" }', "`ca` is empty"),
        ('tls = { ca = "x", minimum = "1.1" }', r"1\.1"),
        ('tls = { ca = "x", cipher = "none" }', "cipher"),
        ("tokens = { keys = [] }", "keys"),
        ('tokens = { keys = ["x"], leeway_s = 3600 }', "leeway_s"),
        ('rule = [{ action = "fly", pattern = "#" }]', "fly"),
        ('rule = [{ action = "publish", patern = "#" }]', "pattern|patern"),
        ('rule = [{ action = "publish", pattern = "#", roles = ["king"] }]', "king"),
    ],
)
def test_a_wrong_section_is_named(text: str, why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.toml.decode(text, type=File)
