"""The community tree (ArchRAG)."""
