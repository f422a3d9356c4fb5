"""Retrieval from the zoom graph (ZoomRAG)."""
