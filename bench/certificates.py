"""A throw-away certificate authority for the TLS rows of a benchmark."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from chappe.security.authority import Authority

PEER, CLIENT = "peer", "bench"


def write_certificates(folder: Path) -> Path:
    """The folder with `ca.pem`, and `peer` and `bench` with their keys, for 127.0.0.1."""
    made = folder / "pki"
    authority = Authority.create(made, datetime.now(UTC), name="bench authority", days=2)
    authority.issue(PEER, "node", datetime.now(UTC), hosts=["127.0.0.1"], days=1)
    authority.issue(CLIENT, "client", datetime.now(UTC), days=1)
    return made


def client_context(folder: str) -> ssl.SSLContext:
    """Trusts that authority and nothing else, and brings the certificate of the load generator."""
    made = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_cert_chain(f"{folder}/{CLIENT}.pem", f"{folder}/{CLIENT}.key")
    return made
