"""Who is there, and what they may do: certificates, tokens, access rules, audit."""

from chappe.security.audit import AuditLog
from chappe.security.authority import Authority
from chappe.security.certificates import identity_of
from chappe.security.config import Action, Audit, Role, Rule, Tls, Tokens
from chappe.security.credentials import Credentials
from chappe.security.identity import Identity, datagram_key, dev_identity
from chappe.security.patterns import topic_address, variable_address
from chappe.security.redact import redact
from chappe.security.rules import Decision, RuleBook
from chappe.security.tls import client_context, expect, handshake_reason, peer_identity, server_context

__all__ = [
    "Action", "Audit", "AuditLog", "Authority", "Credentials", "Decision", "Identity", "Role", "Rule", "RuleBook",
    "Tls", "Tokens", "client_context", "datagram_key", "dev_identity", "expect", "handshake_reason", "identity_of",
    "peer_identity", "redact", "server_context", "topic_address", "variable_address",
]  # fmt: skip
