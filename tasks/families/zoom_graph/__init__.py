"""The zoom graph (ZoomRAG)."""
