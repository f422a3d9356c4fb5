"""Texts that a language model writes, and their fallbacks."""
