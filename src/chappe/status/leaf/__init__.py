"""The leaf broker: the routers, publications and subscriptions of one cloud."""
