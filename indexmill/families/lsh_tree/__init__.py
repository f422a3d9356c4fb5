"""Retrieval from the LSH tree (EraRAG)."""
