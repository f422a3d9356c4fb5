"""The tri-graph (LinearRAG)."""
