"""The public name of the blocking client."""

from chappe.client.sync import Client, Entries, Group, Stream, Subscription, Watch, connect

__all__ = ["Client", "Entries", "Group", "Stream", "Subscription", "Watch", "connect"]
