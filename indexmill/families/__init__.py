"""The families of indexes as a reader sees them, each a folder."""
