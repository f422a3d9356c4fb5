"""Exports of a snapshot: texts with vectors, and the data card."""
