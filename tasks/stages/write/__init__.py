"""Texts that a language model writes, and what stands in for them."""
