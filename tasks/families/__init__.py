"""The index families, each in a folder with its stages, writers and checks."""
