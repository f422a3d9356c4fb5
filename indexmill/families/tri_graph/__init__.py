"""Retrieval from the tri-graph (LinearRAG)."""
