"""Evaluation of retrieval methods and their answers."""
