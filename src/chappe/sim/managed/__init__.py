"""Managed deployments in virtual time: real brokers, routers and clients over modelled links, leases and stores."""
