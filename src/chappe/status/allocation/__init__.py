"""Admission: which paths a subscription gets, what is reserved for it, and what it is guaranteed."""
