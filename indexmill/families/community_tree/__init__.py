"""Retrieval from the community tree (ArchRAG)."""
