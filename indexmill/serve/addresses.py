"""Names of this machine."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that only this machine reaches."""
