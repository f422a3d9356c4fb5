"""Retrieval from a snapshot: the registry of methods (``method_registry``), and the code that several of them share."""
