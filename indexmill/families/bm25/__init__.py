"""Lexical retrieval."""
