"""A snapshot's knowledge graph in the shapes that other tools read."""
