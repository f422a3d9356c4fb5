"""Measurements: retrieval quality, build overhead, query time. Each prints a table and states the machine."""
