"""Passages by their first words."""
