"""Retrieval from the heterograph (NodeRAG)."""
