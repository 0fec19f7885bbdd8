"""The process beside a router that runs its condensation functions."""
