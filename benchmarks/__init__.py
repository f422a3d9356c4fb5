"""Benchmarks of retrieval quality, build overhead and query time. Each prints a table and states the machine."""
