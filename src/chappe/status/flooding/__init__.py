"""Flooding: which variables go everywhere, how far, and who has been instructed."""
