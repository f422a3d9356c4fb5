"""The families of indexes, each a folder: its stages, writers and checks."""
