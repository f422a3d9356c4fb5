"""Serving an index to assistants, by the Model Context Protocol."""
