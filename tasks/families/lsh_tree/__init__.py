"""The LSH tree (EraRAG)."""
