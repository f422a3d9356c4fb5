"""Retrieval from a snapshot: methods found by name in ``registry``, and what several of them share."""
