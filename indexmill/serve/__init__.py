"""Serving an index over HTTP: batches of concurrent questions, tokens, limits, metrics, a clean end."""
