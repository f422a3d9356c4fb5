"""A snapshot's knowledge graph in formats that other tools read."""
