"""Serve an index over HTTP: batches of concurrent questions, tokens, limits, metrics, graceful shutdown."""
