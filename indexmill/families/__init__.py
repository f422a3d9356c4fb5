"""The reader side of the index families, one folder per family."""
