"""The host names by which a machine reaches itself."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names that only this machine can reach."""
