"""`chappe bench managed`: a tree of brokers over simulated routers, with failures, mode changes and a fail-over."""
