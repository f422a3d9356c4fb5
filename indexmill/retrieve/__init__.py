"""Retrieval from a snapshot: the ``registry`` of methods, and the code that several of them share."""
