"""The inner QoS broker: everything between clouds, at any height of the tree."""
