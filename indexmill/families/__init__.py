"""The reader side of the index families, a folder each."""
