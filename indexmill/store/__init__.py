"""The snapshot format, and read-only access to stores and exported folders."""
