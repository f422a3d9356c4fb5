"""Retrieval from a snapshot: one module per method, found by name in ``registry``."""
