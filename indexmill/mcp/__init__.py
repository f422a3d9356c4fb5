"""Serve an index to assistants over the Model Context Protocol."""
