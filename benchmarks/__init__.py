"""Benchmarks of retrieval quality, builds and query time. Each prints a table and states the machine."""
