"""Credentials for tests: an authority, a key for tokens, and the configuration of nodes that believe both."""

from __future__ import annotations

import json
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

from chappe.security.authority import Authority
from chappe.security.config import Rule, Tls
from chappe.security.tls import client_context
from chappe.security.tokens import SigningKey, create_key, issue


class Keys:
    """An authority, a token key and the configuration that believes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "ca", datetime.now(UTC))
        self.tokens: SigningKey = create_key(folder / "tokens")
        (folder / "revoked").write_text("")

    def toml(self, node: str, listen: str = "tls://127.0.0.1:0", rules: str = "") -> str:
        """The file of a node with a certificate; `rules` and other sections follow."""
        if not (self.folder / "ca" / f"{node}.pem").exists():
            self.authority.issue(node, "node", datetime.now(UTC), hosts=["127.0.0.1"])
        ca = self.folder / "ca"
        return (
            f'[node]\nname = "{node}"\n[[listen]]\nurl = "{listen}"\n'
            f'[tls]\nca = "{ca}/ca.pem"\ncert = "{ca}/{node}.pem"\nkey = "{ca}/{node}.key"\ncrl = "{ca}/ca.crl"\n'
            f'[tokens]\nkeys = ["{self.folder}/tokens/token.pub"]\nrevoked = "{self.folder}/revoked"\nleeway_s = 0\n'
            f'[audit]\npath = "{self.folder}/audit.jsonl"\n' + rules
        )

    def token(self, name: str, role: str = "client", ttl_s: int = 60, rules: tuple[Rule, ...] | None = None) -> str:
        return issue(self.tokens, name, role, ttl_s, time.time_ns(), rules)  # type: ignore[arg-type]

    def context(self, name: str = "", role: str = "client") -> ssl.SSLContext:
        """For a connection that shows the certificate of that name, or none."""
        ca = self.folder / "ca"
        if not name:
            return client_context(Tls(ca=f"{ca}/ca.pem"))
        if not (ca / f"{name}.pem").exists():
            hosts = ["127.0.0.1"] if role == "node" else []
            self.authority.issue(name, role, datetime.now(UTC), hosts=hosts)  # type: ignore[arg-type]
        return client_context(Tls(ca=f"{ca}/ca.pem", cert=f"{ca}/{name}.pem", key=f"{ca}/{name}.key"))

    def audit(self, action: str = "control") -> list[dict[str, object]]:
        """The lines of the audit log about one action."""
        lines = [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]
        return [line for line in lines if line["action"] == action]
