"""The public name of the blocking client."""

from chappe.client.sync import Client, Entries, Stream, Subscription, Watch, connect

__all__ = ["Client", "Entries", "Stream", "Subscription", "Watch", "connect"]
